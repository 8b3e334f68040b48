#! let TABLE_HIGH = 1.0001 * u
#! bound TABLE_HIGH: stub
{ 1 <= 2 }
