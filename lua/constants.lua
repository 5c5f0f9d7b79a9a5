-- constants: numbers on which a module and a quick path have to agree. lua.go writes their values
-- in place of their names.

-- Units: above, a double cannot count them one by one.
local most_units = 2 ^ 53

-- A key lives longer than its units count, by this many ms, or for twice the time if that is less:
-- it must never expire earlier.
local grace = 100

-- The key of a record that is needed for slack_from ms or more lives for one slack_part of that
-- longer: most decisions then leave its expiry as it is.
local slack_from, slack_part = 500, 4

-- zset: the least score of the member that holds the horizon's window; and how many members of a size
-- a call tidies up: more than it adds.
local zset_windows, zset_tidied = 2 ^ 50, 500

-- log: entries of the only chunk, as if all were as long as the next one; bytes of entries in a
-- chunk of a ring; bytes of a chunk of one record, with the longest varint; and the ms, and units,
-- of a chunk, and ms of a window without extension, that are too many.
local log_alone, log_fill, log_longest_lone, log_widest = 128, 208, 18 + 8, 2 ^ 32

-- log: how a ring begins, in how many bytes, where its slot 0 begins, the bytes of a slot, and the
-- pages of a block.
local log_front, log_front_size, log_slots, log_page, log_block = '>BI4I4I4BBI6I7I7B', 36, 36 + 255, 256, 32
