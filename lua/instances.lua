-- instances: counts the processes that share a store. Each of them calls this now and
-- then, and is forgotten when it has not for a while.
--
-- KEYS[1] a sorted set: the name of a process, with the time of its last call in ms
-- ARGV[1] now in ms, or "" for the clock of this server
-- ARGV[2] the name of the process
-- ARGV[3] how long it counts without another call, in ms; 0: not any more
-- ARGV[4] 'list': the process only asks
-- Reply   how many there are; with 'list' the name of each, and the ms since its last call
local key, name, life = KEYS[1], ARGV[2], tonumber(ARGV[3])

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%.0f', n) end

if ARGV[4] == 'list' then
  local all = redis.call('ZRANGEBYSCORE', key, '(' .. text(now - life), '+inf', 'WITHSCORES')
  for i = 2, #all, 2 do all[i] = math.max(0, now - all[i]) end
  return all
end

if life == 0 then
  redis.call('ZREM', key, name)
  return redis.call('ZCOUNT', key, '-inf', '+inf')
end

-- A clock that has stepped back: they are there, and count from now on.
for _, early in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. text(now), '+inf')) do
  redis.call('ZADD', key, text(now), early)
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now - life))
redis.call('ZADD', key, text(now), name)
redis.call('PEXPIREAT', key, text(now + life))
return redis.call('ZCOUNT', key, '-inf', '+inf')
