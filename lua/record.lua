-- record: what is kept of a counter, where that is a few whole numbers. The first
-- is the time in ms at which they were written.
--
-- Key     a string: the numbers in decimal, with spaces between them; or, of packed
--         counters, a hash that many of them share:
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
local looked_at = 5

-- When hashes expire, as far as this call knows: several counters of a request may
-- be in one.
local expiry = {}

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%.0f', n) end

local function encode(life, numbers)
  local bytes = {life}
  for _, n in ipairs(numbers) do
    while n >= 128 do
      bytes[#bytes + 1] = 128 + n % 128
      n = floor(n / 128)
    end
    bytes[#bytes + 1] = n
  end
  return string.char(unpack(bytes))
end

-- Returns the byte that tells when they are over, and the first numbers.
local function decode(value, most)
  local numbers, n, factor = {}, 0, 1
  for i = 2, #value do
    local byte = string.byte(value, i)
    n = n + byte % 128 * factor
    factor = factor * 128
    if byte < 128 then
      numbers[#numbers + 1] = n
      if #numbers == most then break end
      n, factor = 0, 1
    end
  end
  return string.byte(value), numbers
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
  numbers = {}
  for n in string.gmatch(value, '%S+') do numbers[#numbers + 1] = tonumber(n) end
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
  for i, n in ipairs(numbers) do numbers[i] = text(n) end
  if expires then
    call('SET', c.key, table.concat(numbers, ' '), 'PXAT', text(expires))
  else
    call('SET', c.key, table.concat(numbers, ' '), 'KEEPTTL')
  end
end

return record
