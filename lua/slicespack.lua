-- slicespack: the slices of a packed counter, for slices.lua.
--
-- Key     a record (see record.lua): the time in ms; then per slice, oldest first: how
--         long before that time its latest unit is, how long before that one its start,
--         units; then the horizon's window, unless all of the hash have it and till is 0;
--         then till, unless it is 0. The field w of the hash is the window that its
--         counters have, in 6 bytes.
--
-- read(c) -> list
--         the slices, oldest first; sets c.own.kept and c.own.till
-- write(c, now, list, expires)
--         Without a time at which the counter expires, it does when it would have.
--
-- c.own holds
--   common  the window that the counters of the hash have, or 0
local record, unpack = module('record'), table.unpack or unpack

local function read_slices(c)
  c.shared = 'w'
  local numbers, all, own = record.get(c), {}, c.own
  own.common = c.sharing and #c.sharing == 6 and struct.unpack('>I6', c.sharing) or 0
  if not numbers then return all end
  if #numbers < 4 then error('WRONGTYPE the key holds no slices', 0) end
  local rest = (#numbers - 1) % 3 -- numbers of the horizon
  own.kept = rest == 0 and own.common or numbers[#numbers - rest + 1]
  if rest == 2 then own.till = numbers[#numbers] end
  for k = 2, #numbers - rest, 3 do
    local last = numbers[1] - numbers[k]
    all[#all + 1] = {start = last - numbers[k + 1], last = last, count = numbers[k + 2]}
  end
  return all
end

local function write_slices(c, now, all, expires)
  if not all[1] then return record.drop(c) end
  local numbers, own = {now}, c.own
  for i, s in ipairs(all) do
    numbers[3 * i - 1], numbers[3 * i], numbers[3 * i + 1] = now - s.last, s.last - s.start, s.count
  end
  if not c.sharing then
    own.common = own.kept
    redis.call('HSET', c.key, 'w', struct.pack('>I6', own.kept))
  end
  if own.till > 0 or own.kept ~= own.common then numbers[#numbers + 1] = own.kept end
  if own.till > 0 then numbers[#numbers + 1] = own.till end
  record.set(c, tonumber(expires), unpack(numbers))
end

return {read = read_slices, write = write_slices}
