-- pass/log: log.lua for a unit of one policy, where no chunk has left the window.
local call, read, write, format = redis.call, struct.unpack, struct.pack, string.format
local byte, char, sub, floor, max, min = string.byte, string.char, string.sub, math.floor, math.max, math.min

-- As in log.lua, which says what a chunk holds.
local header, full = '>I6I7BI4', 16
local most = 2 ^ 53

-- The entry of a record of fewer than 256 units, after a time below 2^20 ms.
local function entry(gap, units)
  local n, more = gap * 2, ''
  if units > 127 then
    n, more = n + 1, char(units, 1)
  elseif units > 1 then
    n, more = n + 1, char(units)
  end
  if n < 128 then return char(n) .. more end
  if n < 16384 then return char(n % 128 + 128, floor(n / 128)) .. more end
  return char(n % 128 + 128, floor(n / 128) % 128 + 128, floor(n / 16384)) .. more
end

-- Returns the varint at position i, and the position after it; nothing if it is long.
local function read_units(text, i)
  local a, b = byte(text, i, i + 1)
  if a < 128 then return a, i + 1 end
  if b < 128 then return a - 128 + b * 128, i + 2 end
end

return function(limit, window, now)
  local lasts = window + min(window, max(100, floor(window / 4)))
  local expires = format('%d', now + lasts)

  -- What a chunk's header says of the key.
  local function known(life, is_first) return life < 2 ^ 31 and life * 2 + is_first or is_first end

  -- Counts the units of a chunk that are in the window, and returns with them when the
  -- oldest of them was. Returns nothing if that is not simple.
  local function count(text, at, units, i)
    local size, ago, oldest, edge = #text, 0, 0, window - (now - at)
    if units == 0 then units, i = read_units(text, i) end
    if edge <= 0 or not units then return end
    while i <= size do
      local gap, b, c = byte(text, i, i + 2)
      i = i + 1
      if gap > 127 then
        gap, i = gap + b * 128 - 128, i + 1
        if b > 127 then
          if c > 127 then return end
          gap, i = gap + c * 16384 - 16384, i + 1
        end
      end
      local several = gap % 2
      ago = ago + (gap - several) / 2
      if ago >= edge then break end
      oldest = ago
      if several == 1 then
        local n
        n, i = read_units(text, i)
        if not n then return end
        units = units + n
      else
        units = units + 1
      end
    end
    return units, at - oldest
  end

  return function(key)
    local tail = call('LINDEX', key, '-1')
    if not tail then
      if limit < 1 then return end
      spending = true
      call('RPUSH', key, write(header, now, 1, 1, known(lasts, 1)))
      call('PEXPIREAT', key, expires)
      return limit - 1
    end
    local at, total, units, life, i = read(header, tail)
    local gap, is_first = now - at, life % 2
    if gap < 0 or total >= most then return end

    local used, oldest
    if is_first == 1 then
      used, oldest = count(tail, at, units, i)
    else
      local head = call('LINDEX', key, '0')
      local head_at, upto, head_units, _, k = read(header, head)
      used, oldest = count(head, head_at, head_units, k)
      used = used and used + total - upto
    end
    if not used or used > limit then return end
    local wait = window - (now - oldest)
    if used == limit then return 0, window - gap, wait, wait end

    local older, chunk_is_full = sub(tail, i), false
    if gap == 0 then
      if units == 0 or units == 255 then return end
      units = units + 1
    else
      if units == 0 or gap >= 2 ^ 20 then return end
      local next = entry(gap, units)
      chunk_is_full = #older >= full * #next
      older = chunk_is_full and '' or next .. older
      if chunk_is_full then is_first = 0 end
      units = 1
    end
    life = floor(life / 2) - gap
    local renews = life < window
    if renews then life = lasts end
    local text = write(header, now, total + 1, units, known(life, is_first)) .. older
    spending = true
    if chunk_is_full then
      call('RPUSH', key, text)
    else
      call('LSET', key, '-1', text)
    end
    if renews then call('PEXPIREAT', key, expires) end
    if used + 1 < limit then return limit - used - 1 end
    return 0, window, wait
  end
end
