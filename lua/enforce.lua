-- enforce: exchanges the orders by which operators have zones enforced while Caddy runs, and tells the time.
--
-- KEYS[1] a hash with a TTL: the last order for each zone
-- ARGV[1] how long the hash is kept from now on if anything is written, in ms
-- ARGV[2] and on: three for each order: its zone, the order that it replaces ("" for none), and the order. An order is
--         not written if the zone has another one than it replaces.
-- Reply   the seconds and microseconds of this server's clock, then a list of the zones and their orders
local key, keep = KEYS[1], tonumber(ARGV[1])
local time = redis.call('TIME')

for i = 2, #ARGV, 3 do
  local zone, known = ARGV[i], ARGV[i + 1]
  if (redis.call('HMGET', key, zone)[1] or '') == known then
    redis.call('HSET', key, zone, ARGV[i + 2])
    redis.call('PEXPIREAT', key, string.format('%.0f', time[1] * 1000 + keep))
  end
end
return {time[1], time[2], redis.call('HGETALL', key)}
