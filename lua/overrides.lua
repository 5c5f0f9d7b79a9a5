-- overrides: writes the limits that operators set for keys while Caddy runs, unless somebody else has
-- done so since they were read.
--
-- KEYS[1] a hash without a TTL: v is the version, every other field a record by its ID
-- ARGV[1] the version that was read; "" for none: all records are then replaced
-- ARGV[2] the next version
-- ARGV[3] how many IDs of records follow that go; after these, an ID and a record for each that comes
-- Reply   the version that holds now. It is the next one if the records were written.
local key, known, following = KEYS[1], ARGV[1], 4 + tonumber(ARGV[3])

local version = redis.call('HMGET', key, 'v')[1] or ''
if version ~= known then return version end

if version == '' then redis.call('UNLINK', key) end
if following > 4 then redis.call('HDEL', key, unpack(ARGV, 4, following - 1)) end
redis.call('HSET', key, 'v', ARGV[2], unpack(ARGV, following))
return ARGV[2]
