from posenc._cli import main

raise SystemExit(main())
