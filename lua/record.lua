-- record: what is kept of a counter, where that is a few whole numbers. The first
-- is the time in ms at which they were written.
--
-- Key     a string: the first number in 6 bytes, the others in 7, which come in
--         pairs, and the time in ms at which the key expires in 6; most significant
--         bytes first. Or, of packed counters, a hash that many of them share:
--         <12 bytes>  a counter: a byte n, it is over 2^(n/4) ms after it was written;
--                     a byte for its shape, 8 × numbers + bytes of each, without the
--                     first; the first number in 6 bytes; up to 31 others, each in the
--                     bytes that the shape says
--         expires     two times of 6 bytes: when the hash expires, not before the last
--                     of them is over; when to look for some that are
--         and what an algorithm keeps for all of them, in up to 8 bytes: the field
--         c.shared, whose value is c.sharing
--
-- Keys live for a while longer than counters, so that most decisions leave the expiry
-- as it is, and write a string in its place: that takes a third of the time.
--
-- A hash is small if its fields are few and short: a list without pointers, of a few
-- dozen bytes per counter. Those that are over go when others come.
--
-- values(c) -> number..., any  the numbers of the record, and one more value to ignore
--           -> nil             there is no record
--           -> false           the key holds other data
-- get(c) -> list             the numbers; nil if there is no record
-- set(c, expires, at, number...)
--         expires  when they do, in ms; nil: as what was read
--         at       the first number
--         Writes numbers, each for itself, in place of those that were read.
-- lasts(c, at) -> ms        until when what was read is there at least; at is its first number
-- drop(c)
--         Forgets the counter.
--
-- A charge holds here, too:
--   shared   set by an algorithm: the field of the hash that it keeps for all counters
--   sharing  the value of that field, or false
--   stepped  set by an algorithm: what was read lies in the future
--   ends     when the key expires, in ms; looks, when to look for some that are over
--   pairs    how many pairs of numbers the string holds
--   life     the first byte of the packed counter, or nil
local call, unpack, byte = redis.call, table.unpack or unpack, string.byte
local read, write = struct.unpack, struct.pack
local ceil, floor, log, max, min = math.ceil, math.floor, math.log, math.max, math.min

-- When a counter is added, `looked_at` random fields are checked, and those that are over
-- are deleted. If `many` were over, the next added counter checks again. In the long run,
-- about a quarter of the fields are over.
local looked_at, many = '20', 5

-- When hashes expire and are looked at, where this call has changed that: several
-- counters of a request may be in one.
local changed = {}

local none, never = {}, 2 ^ 48 - 1

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%d', n) end

-- The formats of strings by how many pairs of numbers they hold, without the expiry.
local formats = setmetatable({}, {__index = function(all, n)
  all[n] = '>I6' .. string.rep('I7I7', n)
  return all[n]
end})

-- The formats of packed counters by shape, with the two bytes in front or past them.
local function packed(front)
  return setmetatable({}, {__index = function(all, shape)
    local width = shape % 8
    all[shape] = front .. string.rep('I' .. width, (shape - width) / 8)
    return all[shape]
  end})
end

local whole, numbers = packed('>BBI6'), packed('>xxI6')

-- The smallest number that 1, 2, ... bytes cannot hold.
local beyond = {2 ^ 8, 2 ^ 16, 2 ^ 24, 2 ^ 32, 2 ^ 40, 2 ^ 48, 2 ^ 56}

local function encode(first, at, ...)
  local width, largest = 1, max(...)
  while largest >= beyond[width] do width = width + 1 end
  local shape = 8 * select('#', ...) + width
  return write(whole[shape], first, shape, at, ...)
end

local quarters = 4 / log(2)

local function lives(n) return 2 ^ (n / 4) end

-- The life that lasts for a time, or up to a fifth longer.
local function life(ms) return ceil(log(ms) * quarters) end

-- How much longer a key may live than a counter that lasts for a time.
local function slack(ms)
  if ms < slack_from then return 0 end
  return floor(ms / slack_part)
end

local function packed_values(c)
  local found
  if c.shared then
    found = call('HMGET', c.key, c.member, 'expires', c.shared)
  else
    found = call('HMGET', c.key, c.member, 'expires')
  end
  local value, times = found[1], found[2]
  c.sharing = found[3]
  if not times then
    c.ends, c.looks, changed[c.key] = 0, never, nil
  elseif #times == 12 then
    c.ends, c.looks = read('>I6I6', times)
  else
    error('WRONGTYPE the hash holds no packed counters', 0)
  end
  c.life = nil
  if not value then return end
  local first, shape = byte(value, 1, 2)
  local width = (shape or 0) % 8
  if #value <= 8 or #value ~= 8 + (shape - width) / 8 * width then return false end
  c.life = first
  return read(numbers[shape], value)
end

local function values(c)
  if c.member then return packed_values(c) end
  local value = call('GET', c.key)
  c.ends = nil
  if not value then return end
  local n = (#value - 12) / 14
  if n < 1 or n > 1000 or n % 1 > 0 then return false end
  c.ends, c.pairs = read('>I6', value, #value - 5), n
  return read(formats[n], value)
end

local function get(c)
  local numbers = {values(c)}
  if numbers[1] == nil then return nil end
  numbers[#numbers] = nil -- the additional value of values
  return numbers
end

-- Returns some of the fields that are over.
local function over(key, now)
  local found, fields = call('HRANDFIELD', key, looked_at, 'WITHVALUES'), {}
  for i = 1, #found, 2 do
    local field, value = found[i], found[i + 1]
    if #value > 8 and field ~= 'expires' then
      local n, _, at = read('>BBI6', value)
      if at + lives(n) <= now then fields[#fields + 1] = field end
    end
  end
  return fields
end

-- Returns some of the fields that are over, if it is time to look for them, and when
-- to look next. A counter comes that lasts for a time.
local function look(key, at, now, lasting)
  local later = now + floor(lasting / 16)
  if now < at then return none, min(at, later) end
  local found = over(key, now)
  if #found < many then at = later end
  return found, at
end

-- A hash of more fields is not looked through at once.
local small = 512

-- Returns when a hash is to expire whose clock has stepped back: when the last of its
-- counters is over, for which what is written in the future counts as written now.
local function renew(c, expires, now)
  if call('HLEN', c.key) > small then return c.ends end
  local all, latest = call('HGETALL', c.key), expires
  for i = 1, #all, 2 do
    local field, value = all[i], all[i + 1]
    if #value > 8 and field ~= 'expires' and field ~= c.member then
      local n, _, at = read('>BBI6', value)
      latest = max(latest, min(at, now) + ceil(lives(n)))
    end
  end
  return latest + slack(latest - now)
end

local function set_packed(c, expires, now, ...)
  local key, gone, ends, looks, known = c.key, none, c.ends, c.looks, changed[c.key]
  if known then ends, looks = known.ends, known.looks end
  local ended, looked = ends, looks
  if expires then
    local lasting = expires - now
    if not c.life then gone, looks = look(key, looks, now, lasting) end
    c.life = life(lasting)
    if expires > ends then
      ends = expires + slack(lasting)
    elseif c.stepped then
      ends = min(ends, renew(c, expires, now))
    end
  end
  local value = encode(c.life, now, ...)
  if ends == ended and looks == looked then
    call('HSET', key, c.member, value)
  else
    call('HSET', key, c.member, value, 'expires', write('>I6I6', ends, looks))
    if ends ~= ended then call('PEXPIREAT', key, text(ends)) end
    changed[key] = {ends = ends, looks = looks}
  end
  if gone[1] then call('HDEL', key, unpack(gone)) end
end

-- With c.stepped, the clock has stepped back, and a key of before the step may expire no
-- later than it has to by the clock of now.
local function set(c, expires, at, ...)
  if c.member then return set_packed(c, expires, at, ...) end
  local n = select('#', ...) / 2
  local value, ends = write(formats[n], at, ...), c.ends
  if ends and c.pairs == n and (not expires or expires <= ends and not c.stepped) then
    call('SETRANGE', c.key, '0', value)
  else
    ends = expires + slack(expires - at)
    call('SET', c.key, value .. write('>I6', ends), 'PXAT', text(ends))
  end
end

local function lasts(c, at)
  if not c.member then return c.ends end
  return min(c.ends, at + lives(c.life))
end

local function drop(c)
  if c.member then call('HDEL', c.key, c.member) else call('UNLINK', c.key) end
end

return {values = values, get = get, set = set, lasts = lasts, drop = drop}
