-- record: what is kept of a counter, where that is a few whole numbers. The first
-- is the time in ms at which they were written.
--
-- Key     a string: the first number in 6 bytes, the others in 7, which come in
--         pairs; most significant bytes first. Or, of packed counters, a hash that
--         many of them share:
--         <12 bytes>  the numbers of one, behind a byte n: it is over 2^(n/4) ms
--                     after it was written. Seven bits a byte, the lowest first; the
--                     eighth says that the number goes on
--         expires     when the hash expires: not before the last of them is over
--
-- A hash is small if its fields are few and short: a list without pointers, of a few
-- dozen bytes per counter. Those that are over go when others come.
local record = {}
local unpack, call, floor = table.unpack or unpack, redis.call, math.floor

-- Fields that are looked at, at random, for each that comes: in the long run, one
-- of so many is over.
local looked_at = '5'

-- When hashes expire, as far as this call knows: several counters of a request may
-- be in one.
local expiry = {}

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%d', n) end

-- The formats of strings by how many pairs of numbers they hold.
local formats = setmetatable({}, {__index = function(all, pairs)
  all[pairs] = '>I6' .. string.rep('I7I7', pairs)
  return all[pairs]
end})

local function encode(life, numbers)
  local bytes, k = {life}, 1
  for i = 1, #numbers do
    local n = numbers[i]
    while n >= 128 do
      local low = n % 128
      k = k + 1
      bytes[k] = 128 + low
      n = (n - low) / 128
    end
    k = k + 1
    bytes[k] = n
  end
  return string.char(unpack(bytes))
end

-- Returns the byte that tells when they are over, and the first numbers.
local function decode(value, most)
  local bytes, numbers, found, n, factor = {string.byte(value, 1, -1)}, {}, 0, 0, 1
  for i = 2, #bytes do
    local byte = bytes[i]
    if byte < 128 then
      found = found + 1
      numbers[found] = n + byte * factor
      if found == most then break end
      n, factor = 0, 1
    else
      n = n + (byte - 128) * factor
      factor = factor * 128
    end
  end
  return bytes[1], numbers
end

local function lasts(life) return 2 ^ (life / 4) end

-- The life that lasts for a time, or up to a fifth longer.
local function life(ms)
  local n = math.max(0, floor(4 * math.log(ms) / math.log(2)))
  while lasts(n) < ms do n = n + 1 end
  return n
end

-- How much longer a hash may live than a counter that lasts for a time, so that not
-- every one has to put its expiry off.
local function slack(ms)
  if ms < 500 then return 0 end
  return floor(ms / 4)
end

-- Returns the numbers; nil if there are none.
function record.get(c)
  local numbers
  if c.member then
    local values = call('HMGET', c.key, c.member, 'expires')
    c.life, expiry[c.key] = nil, tonumber(values[2] or 0)
    if values[1] then c.life, numbers = decode(values[1]) end
    return numbers
  end
  local value = call('GET', c.key)
  if not value then return nil end
  local pairs = (#value - 6) / 14
  if pairs < 1 or pairs > 1000 or pairs ~= floor(pairs) then return {} end -- foreign
  numbers = {struct.unpack(formats[pairs], value)}
  numbers[2 * pairs + 2] = nil -- the position after them
  return numbers
end

-- Deletes some of the counters that are over.
local function prune(c, now)
  local found, over = call('HRANDFIELD', c.key, looked_at, 'WITHVALUES'), {}
  for i = 1, #found, 2 do
    if found[i] ~= 'expires' then
      local n, numbers = decode(found[i + 1], 1)
      if numbers[1] and numbers[1] + lasts(n) <= now then over[#over + 1] = found[i] end
    end
  end
  if #over > 0 then call('HDEL', c.key, unpack(over)) end
end

-- Writes numbers in place of those that get has returned. Without a time at which
-- they expire, they do when those would have.
function record.set(c, numbers, expires)
  if c.member then
    local new, lasting = not c.life, expires and expires - numbers[1]
    if expires then c.life = life(lasting) end
    local value = encode(c.life, numbers)
    if expires and expires > expiry[c.key] then
      expiry[c.key] = expires + slack(lasting)
      local at = text(expiry[c.key])
      call('HSET', c.key, c.member, value, 'expires', at)
      call('PEXPIREAT', c.key, at)
    else
      call('HSET', c.key, c.member, value)
    end
    if new then prune(c, numbers[1]) end
    return
  end
  local value = struct.pack(formats[(#numbers - 1) / 2], unpack(numbers))
  if expires then
    call('SET', c.key, value, 'PXAT', text(expires))
  else
    call('SET', c.key, value, 'KEEPTTL')
  end
end

return record
