-- pass/log: log.lua for a unit of one policy, where not all of a chunk has left the window. See
-- driver.lua.
--
-- make(limit, window, now) -> decide, wants_strings
local call, read, write, format = redis.call, struct.unpack, struct.pack, string.format
local byte, char, sub, floor, max, min = string.byte, string.char, string.sub, math.floor, math.max, math.min

-- As in logchunk.lua and logring.lua, which say what a key holds; but the units of the newest record and
-- the window of the horizon are one number, for a number takes longer than its bytes.
local lone, header = '>I6I7I5', '>I6I7I5I4I4'
local unit = 2 ^ 32 -- in that number
local reach = '599' -- up to where a key is read: more than a ring has before its slots

-- Under a limit up to this, keys are short enough to be read as a whole.
local short = 128

-- Returns the varint at position i, and the position after it; nothing if it is long.
local function read_units(text, i)
  local a, b = byte(text, i, i + 1)
  if a < 128 then return a, i + 1 end
  if b < 128 then return a - 128 + b * 128, i + 2 end
end

-- Returns the byte of the header for n units, and the varint that follows the numbers if
-- the byte cannot hold n.
local function write_units(n)
  if n < 256 then return n, '' end
  return 0, char(n % 128 + 128, floor(n / 128))
end

-- Returns how a chunk is written that gets an entry, of a time after it and its units: the
-- header, what entries there were, and a byte for each of this one. Returns the format, how
-- many bytes are the entry, and these; nothing if they are many.
local function entry(gap, units)
  if gap >= 2 ^ 20 then return end
  local n, u, v = gap * 2
  if units > 1 then
    n, u = n + 1, units
    if u > 127 then u, v = u % 128 + 128, floor(u / 128) end
  end
  local form, size, a
  local low = n % 128
  if n < 128 then
    form, size, a = '>I6I7I5I4I4c0B', 1, n
  elseif n < 16384 then
    form, size, a = '>I6I7I5I4I4c0I2', 2, (low + 128) * 256 + (n - low) / 128
  else
    local middle = (n - low) / 128 % 128
    form, size, a = '>I6I7I5I4I4c0I3', 3, (low + 128) * 65536 + (middle + 128) * 256 + floor(n / 16384)
  end
  if v then return form .. 'BB', size + 2, a, u, v end
  if u then return form .. 'B', size + 1, a, u end
  return form, size, a
end

-- Returns the time of the first record behind edge, the units before it, and where its
-- entries begin; nothing if there is a number of many bytes.
local function skip(text, i, at, before, edge)
  while at <= edge do
    local n, b, c = byte(text, i, i + 2)
    i = i + 1
    if n > 127 then
      n, i = n + b * 128 - 128, i + 1
      if b > 127 then
        if c > 127 then return end
        n, i = n + c * 16384 - 16384, i + 1
      end
    end
    if n % 2 == 0 then
      at, before = at + n / 2, before + 1
    else
      at = at + (n - 1) / 2
      n, i = read_units(text, i)
      if not n then return end
      before = before + n
    end
  end
  return at, before, i
end

return function(limit, window, now)
  if window >= log_widest then return nil end
  local edge, quarter = now - window, min(window, max(100, floor(window / 4)))
  local period = floor(now / quarter)
  local expires = format('%d', (period + 1) * quarter + window)
  local strings = limit <= short

  -- After a decision: the only chunk, or the newest one of a ring, what the ring says before
  -- it, and the chunk of its oldest page.
  local known, is_ring, known_page
  local slot, pages, room, nth, begin, oldest, before, base, length

  return function(key, _, _, text, again)
    if again then
      text = known
    else
      known_page = nil
      if not text then
        text = call('GETRANGE', key, '0', reach)
        if text == '' then
          if limit < 1 then return end
          known, is_ring = write(lone, now, 1, unit + window), false
          spending = true
          call('SET', key, known, 'PXAT', expires)
          return limit - 1
        end
      end
    end
    local tail = text
    if not again then
      local kind = byte(text)
      is_ring = kind == 255
      if #text < 18 or kind > 31 and (not is_ring or #text < log_slots) then return end
      if not strings and not is_ring and #text == 600 then return end -- there may be more
      if is_ring then
        local _
        _, slot, pages, room, nth, begin, oldest, before, base, length = read(log_front, text)
        tail = sub(text, log_front_size + 1, log_front_size + length)
      end
    end
    local at, total, both, span, inside, entries
    if #tail > log_longest_lone then
      at, total, both, span, inside, entries = read(header, tail)
    else
      at, total, both, entries = read(lone, tail)
      span, inside = 0, 0
    end
    local units, gap = floor(both / unit), now - at
    if gap < 0 or total >= most_units or at <= edge or both - units * unit ~= window then return end
    if units == 0 then
      units, entries = read_units(tail, entries)
      if not units then return end
    end

    -- Most often nothing has left the window, or it did so before the key was written.
    if not is_ring then
      oldest, before = at - span, total - units - inside
      if oldest <= edge then
        oldest, before, entries = skip(tail, entries, oldest, before, edge)
        if not oldest then return end
        span, inside = at - oldest, total - units - before
      end
    elseif oldest <= edge then
      local chunk = known_page
      if not chunk then
        local from = log_slots + slot * log_page
        if from + log_page <= #text then
          chunk = sub(text, from + 1, from + log_page)
        else
          chunk = call('GETRANGE', key, from, from + log_page - 1)
        end
        chunk = sub(chunk, 2, 1 + byte(chunk))
        known_page = chunk
      end
      if read('>I6', chunk) <= edge then return end
      oldest, before, begin = skip(chunk, begin, oldest, before, edge)
      if not oldest then return end
    end
    local used, wait = total - before, oldest - edge
    if used >= limit then
      if used > limit then return end
      known = tail
      return 0, window - gap, wait, wait
    end

    local form, size, a, b, c = '>I6I7I5I4I4c0', 0
    if gap == 0 then
      units = units + 1
    else
      form, size, a, b, c = entry(gap, units)
      span, inside = span + gap, inside + units
      if not form or span >= log_widest or inside >= log_widest then return end
      local full = #tail + 1 - entries
      if is_ring and full + size > log_fill or not is_ring and full >= log_alone * size then return end
      units = 1
    end
    local renews = floor(at / quarter) ~= period
    if units > 16383 then return end
    local own, more = write_units(units)
    spending = true
    local chunk
    if inside > 0 then
      chunk = write(form, now, total + 1, own * unit + window, span, inside, more .. sub(tail, entries), a, b, c)
    else
      chunk = write(lone, now, total + 1, own * unit + window) .. more
    end
    if is_ring then
      call('SETRANGE', key, '0', write(log_front, 255, slot, pages, room, nth, begin, oldest, before, base, #chunk) .. chunk)
      if renews then call('PEXPIREAT', key, expires) end
    elseif renews then
      call('SET', key, chunk, 'PXAT', expires)
    elseif #chunk < #text then
      call('SET', key, chunk, 'KEEPTTL')
    else
      call('SETRANGE', key, '0', chunk)
    end
    known = chunk
    used = used + 1
    if used < limit then return limit - used end
    return 0, window, wait
  end, strings
end
