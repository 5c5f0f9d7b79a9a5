-- pass/gcra: gcra.lua for a unit of one policy. See driver.lua.
--
-- make(limit, window, now, _, _, packed, burst) -> decide
local call, read, write, format = redis.call, struct.unpack, struct.pack, string.format
local ceil, floor, min = math.ceil, math.floor, math.min

return function(limit, window, now, _, _, packed, burst)
  if limit == 0 then return nil end
  local full = (burst == 0 and limit or burst) * window
  -- Only packed counters need the module: to make it takes as long as a decision.
  local record, counter = packed and module('record'), {}

  -- load(key, field)
  --   -> number, number, number, expires   expires is undefined if the counter is packed
  --   -> nil                               there is no record
  --   -> false                             the record has another length
  local function load(key, field)
    if record then
      counter.key, counter.member = key, field
      local at, measured, stored, ends, more = record.values(counter)
      if more then return false end
      return at, measured, stored, ends
    end
    local value = call('GET', key)
    if not value then return end
    if #value ~= 26 then return false end
    return read('>I6I7I7I6', value)
  end

  local at, measured, stored, ends -- as they are in Redis

  return function(key, _, field, _, again)
    if not again then at, measured, stored, ends = load(key, field) end
    local level = 0
    if at then
      if at > now or measured ~= window or stored > full then return end
      level = stored - (now - at) * limit
      if level < 0 then level = 0 end
    elseif at == false then
      return
    end
    local left = floor((full - level) / window)
    if left < 1 then
      local wait = ceil((window - (full - level)) / limit)
      if at and (record and record.lasts(counter, at) or ends) < now + wait then return end
      return 0, ceil(level / limit), wait, wait
    end
    level = level + window
    local reset = ceil(level / limit)
    local lasting = reset + min(reset, grace)
    local expires = now + lasting
    spending = true
    if record then
      record.set(counter, expires, now, window, level)
    elseif at and expires <= ends then
      call('SETRANGE', key, '0', write('>I6I7I7', now, window, level))
    else
      if lasting >= slack_from then expires = expires + floor(lasting / slack_part) end
      call('SET', key, write('>I6I7I7I6', now, window, level, expires), 'PXAT', format('%d', expires))
      ends = expires
    end
    at, measured, stored = now, window, level
    return left - 1, reset, ceil((left * window - (full - level)) / limit)
  end
end
