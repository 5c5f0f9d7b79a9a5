-- pass/log: log.lua for a unit of one policy, where no chunk has left the window.
local call, read, write, format = redis.call, struct.unpack, struct.pack, string.format
local byte, char, sub, floor, max, min = string.byte, string.char, string.sub, math.floor, math.max, math.min

-- As in log.lua, which says what a chunk holds; but the units of the newest record and
-- the window of the horizon are one number, for a number takes longer than its bytes.
local lone, header, full, alone, stale = '>I6I7I5', '>I6I7I5I4I4', 32, 128, 16
local unit = 2 ^ 32
local longest_lone = 18 + 8
local most, widest = 2 ^ 53, 2 ^ 32

-- Returns the varint at position i, and the position after it; nothing if it is long.
local function read_units(text, i)
  local a, b = byte(text, i, i + 1)
  if a < 128 then return a, i + 1 end
  if b < 128 then return a - 128 + b * 128, i + 2 end
end

-- Returns what the header's byte says of so many units, and what then follows the numbers.
local function write_units(n)
  if n < 256 then return n, '' end
  return 0, char(n % 128 + 128, floor(n / 128))
end

return function(limit, window, now)
  if window >= widest then return nil end
  local edge, quarter = now - window, min(window, max(100, floor(window / 4)))
  local period = floor(now / quarter)
  local expires = format('%d', (period + 1) * quarter + window)

  -- After a decision: the newest chunk, whether it is all there is, and if it is not, the
  -- oldest time and the units that count.
  local newest, single, last_oldest, last_used

  return function(key, _, _, text, again)
    local tail = text
    if again then
      tail, text = newest, single and newest
    elseif not text then
      tail = call('LINDEX', key, '-1')
      if not tail then
        if limit < 1 then return end
        newest, single = write(lone, now, 1, unit + window), true
        spending = true
        call('SET', key, newest, 'PXAT', expires)
        return limit - 1
      end
    elseif #text < 18 or byte(text) > 31 then
      return
    end
    local at, total, both, span, inside, entries
    if #tail > longest_lone then
      at, total, both, span, inside, entries = read(header, tail)
    else
      at, total, both, entries = read(lone, tail)
      span, inside = 0, 0
    end
    local units, gap = floor(both / unit), now - at
    if gap < 0 or total >= most or both - units * unit ~= window then return end
    if units == 0 then
      units, entries = read_units(tail, entries)
      if not units then return end
    end

    -- Most often nothing has left the window, or it did so before the chunk was written.
    local oldest, used = at - span, units + inside
    local head, head_at, head_total, head_units, begin, i
    if again and not text then
      oldest, used = last_oldest, last_used
    elseif not text or oldest <= edge then
      head, head_at, head_total, head_units, begin = tail, at, total, units, entries
      if not text then
        local head_span, head_inside
        head = call('LINDEX', key, '0')
        if head == tail or #head <= longest_lone then return end
        head_at, head_total, head_units, head_span, head_inside, begin = read(header, head)
        head_units = floor(head_units / unit)
        if head_units == 0 then
          head_units, begin = read_units(head, begin)
          if not head_units then return end
        end
        oldest, used = head_at - head_span, total - head_total + head_units + head_inside
      end
      if head_at <= edge or head_at > now then return end
      i = begin
      while oldest <= edge do
        local n, b, c = byte(head, i, i + 2)
        i = i + 1
        if n > 127 then
          n, i = n + b * 128 - 128, i + 1
          if b > 127 then
            if c > 127 then return end
            n, i = n + c * 16384 - 16384, i + 1
          end
        end
        if n % 2 == 0 then
          oldest, used = oldest + n / 2, used - 1
        else
          oldest = oldest + (n - 1) / 2
          n, i = read_units(head, i)
          if not n then return end
          used = used - n
        end
      end
      if text then entries, span, inside = i, at - oldest, used - units end
    end
    local wait = oldest - edge
    if used >= limit then
      if used > limit then return end
      newest, single, last_oldest, last_used = tail, text, oldest, used
      return 0, window - gap, wait, wait
    end

    -- The entry of what was newest so far, and how a chunk is written that gets it: the
    -- header, what entries there were, and a byte for each of this one.
    local form, size, a, b, c = '>I6I7I5I4I4c0', 0
    if gap == 0 then
      units = units + 1
    else
      span, inside = span + gap, inside + units
      if gap >= 2 ^ 20 or span >= widest or inside >= widest then return end
      local n, u, v = gap * 2
      if units > 1 then
        n, u = n + 1, units
        if u > 127 then u, v = u % 128 + 128, floor(u / 128) end
      end
      local low = n % 128
      if n < 128 then
        form, size, a = '>I6I7I5I4I4c0B', 1, n
      elseif n < 16384 then
        form, size, a = '>I6I7I5I4I4c0I2', 2, (low + 128) * 256 + (n - low) / 128
      else
        local middle = (n - low) / 128 % 128
        form, size, a = '>I6I7I5I4I4c0I3', 3, (low + 128) * 65536 + (middle + 128) * 256 + floor(n / 16384)
      end
      b, c = u, v
      if v then
        form, size = form .. 'BB', size + 2
      elseif u then
        form, size = form .. 'B', size + 1
      end
      units = 1
    end
    local fits = size == 0 or #tail + 1 - entries < (text and alone or full) * size
    if text and not fits then return end
    local renews = floor(at / quarter) ~= period
    if units > 16383 then return end
    local own, more = write_units(units)
    spending = true
    local chunk
    if not fits then
      chunk = write(lone, now, total + 1, unit + window)
    elseif inside > 0 then
      chunk = write(form, now, total + 1, own * unit + window, span, inside, more .. sub(tail, entries), a, b, c)
    else
      chunk = write(lone, now, total + 1, own * unit + window) .. more
    end
    if not text then
      if fits then call('LSET', key, '-1', chunk) else call('RPUSH', key, chunk) end
      if not again and i - begin > stale then
        local left, head_byte, rest = used - total + head_total - head_units, write_units(head_units)
        if left > 0 then
          rest = write(header, head_at, head_total, head_byte * unit, head_at - oldest, left) .. rest .. sub(head, i)
        else
          rest = write(lone, head_at, head_total, head_byte * unit) .. rest
        end
        call('LSET', key, '0', rest)
      end
      if renews then call('PEXPIREAT', key, expires) end
    elseif renews then
      call('SET', key, chunk, 'PXAT', expires)
    elseif #chunk < #text then
      call('SET', key, chunk, 'KEEPTTL')
    else
      call('SETRANGE', key, '0', chunk)
    end
    used = used + 1
    newest, single, last_oldest, last_used = chunk, text, oldest, used
    if used < limit then return limit - used end
    return 0, window, wait
  end, true
end
