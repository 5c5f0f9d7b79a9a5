-- pass/slices: slices.lua for a unit of one policy, where slices have one length and
-- count as a whole, and no two of them become one. See driver.lua.
--
-- make(limit, window, now, _, _, packed, weighted, size, count, _, longest) -> decide
local call, byte, find, sub, format = redis.call, string.byte, string.find, string.sub, string.format
local ceil, floor, max, min, unpack = math.ceil, math.floor, math.max, math.min, table.unpack or unpack

local colon = byte(':')

return function(limit, window, now, _, _, packed, weighted, size, count, _, longest)
  if packed or weighted == 1 or longest > 0 then return nil end
  local length = size > 0 and min(size, window) or ceil(window / count)
  local edge, begin = now - window, now - now % length
  local fresh, kept = format('%d', begin), format('%d', window)
  -- As in slices.lua: the last unit says when the key expires.
  local quarter = min(window, max(100, floor(window / 4)))
  local period = floor(now / quarter)
  -- Texts that many keys of a batch need, and most requests alone do not: each takes 1,300 instructions.
  local expires, first -- of the keys, and of a slice that begins with one unit

  local used, start, last, units, newest -- of what counts, and of the newest slice, with its field
  local oldest -- the last unit of the oldest slice that counts
  local gone   -- the fields of those before it
  local new    -- there is nothing yet

  -- Reads the slices. Returns whether they are as they have to be.
  local function load(key)
    local all = call('HGETALL', key)
    used, start, last, units, newest, oldest, gone = 0, 0, 0, 0, nil, nil, nil
    new = not all[1]
    if new then return true end
    if all[1] ~= 'w' or all[2] ~= kept then return false end
    for i = 3, #all, 2 do
      local field, value = all[i], all[i + 1]
      local from = field + 0
      if from <= last then return false end
      local a, b = byte(value, 1, 2)
      if b == colon then
        units, last = a - 48, from + sub(value, 3)
      else
        local k = find(value, ':', 3, true)
        units, last = sub(value, 1, k - 1) + 0, from + sub(value, k + 1)
      end
      if last <= edge then
        gone = gone or {}
        gone[#gone + 1] = field
      else
        if not oldest then
          oldest = last
        elseif last - start < length then
          return false
        end
        used = used + units
      end
      start, newest = from, field
    end
    return last <= now
  end

  return function(key, _, _, _, again)
    if not again and not load(key) then return end
    if used >= limit then
      if used > limit or limit == 0 then return end
      local wait = oldest - edge
      return 0, last - edge, wait, wait
    end
    if start >= begin or last == now then
      units = units + 1
    elseif last >= begin or oldest and now - start < length then
      return
    else
      start, units, newest = begin, 1, fresh
    end
    local value
    if units == 1 and start == begin then
      first = first or format('1:%d', now - begin)
      value = first
    else
      value = format('%d:%d', units, now - start)
    end
    spending = true
    if new then
      call('HSET', key, 'w', kept, newest, value)
      new = false
    else
      call('HSET', key, newest, value)
    end
    if floor(last / quarter) ~= period then
      expires = expires or format('%d', (period + 1) * quarter + window)
      call('PEXPIREAT', key, expires)
    end
    if gone then
      for i = 1, #gone, 1000 do call('HDEL', key, unpack(gone, i, min(i + 999, #gone))) end
      gone = nil
    end
    last, used = now, used + 1
    if units == used then oldest = now end
    if used < limit then return limit - used end
    return 0, window, oldest - edge
  end
end
