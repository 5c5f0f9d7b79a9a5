-- pass/slices: slices.lua for a unit of one policy, where slices have one length and
-- count as a whole, and no two of them become one.
local call, byte, find, sub, format = redis.call, string.byte, string.find, string.sub, string.format
local ceil, min = math.ceil, math.min

local colon = byte(':')

return function(limit, window, now, _, _, packed, weighted, size, count, _, longest)
  if packed or weighted == 1 or longest > 0 then return nil end
  local length = size > 0 and min(size, window) or ceil(window / count)
  local edge, begin = now - window, now - now % length
  local fresh, expires = format('%d', begin), format('%d', now + window + min(window, 100))

  return function(key)
    local all = call('HGETALL', key)
    local used, newest, start, last, units = 0, #all - 1, 0, 0
    local oldest, gone -- the last unit of the oldest slice that counts; those before it
    for i = 1, newest, 2 do
      local field, value = all[i], all[i + 1]
      local next = field + 0
      if next <= last then return end
      local a, b = byte(value, 1, 2)
      if b == colon then
        units, last = a - 48, next + sub(value, 3)
      else
        local k = find(value, ':', 3, true)
        units, last = sub(value, 1, k - 1) + 0, next + sub(value, k + 1)
      end
      if last <= edge then
        gone = gone or {}
        gone[#gone + 1] = field
      else
        if not oldest then
          oldest = last
        elseif last - start < length then
          return
        end
        used = used + units
      end
      start = next
    end
    if last > now then return end
    if used >= limit then
      if used > limit or limit == 0 then return end
      local wait = oldest - edge
      return 0, last - edge, wait, wait
    end

    if start >= begin or last == now then
      spending = true
      call('HSET', key, all[newest], format('%d:%d', units + 1, now - start))
      if used == units then oldest = now end
    elseif last < begin then
      if oldest and now - start < length then return end
      spending = true
      call('HSET', key, fresh, '1:' .. now - begin)
      oldest = oldest or now
    else
      return
    end
    if gone then
      for i = 1, #gone do call('HDEL', key, gone[i]) end
    end
    call('PEXPIREAT', key, expires)
    if used + 1 < limit then return limit - used - 1 end
    return 0, window, oldest - edge
  end
end
