-- layershistory: reads and writes the histories of layers.lua.
--
-- Key     a hash. Slices have absolute numbers: their time divided by their length.
--         <n>   fine slice n, closed: "<units>:<time of the latest - start>"
--         c<n>  coarse slice n, closed: the same, with the time of its first fine
--               slice
--         open  the two slices that are open: "<coarse time>:<coarse units>:<fine time>:
--               <fine units>"
--         kept  "<coarse>:<fine>:<since>:<window>:<till>:<stale>": the lengths of slices,
--               when the history begins, the horizon (see horizon.lua), and 1 if there may
--               be slices from before the history
--         Every decision needs these two. They are apart because Redis keeps a hash small
--         only while each value has at most 64 bytes (hash-max-listpack-value).
--
-- A history, h, is a table of two layers and of what is to be written:
--   coarse, fine           layers; each has a prefix and a length, as in the key; open, the newest
--                          slice, or nil; and closed, those that were read by number, false if
--                          they are not there. complete: all were read
--   since, window, till    as in kept
--   has_stale              there may be slices from before since
--   kept                   the value of kept, as it was read
--   written, stale         fields and values that save writes, and fields that it deletes
-- A slice, t, has {at, count}: the time of the latest unit or, if it is coarse, of its first
-- fine slice; and units.
--
-- make(coarse, fine, since) -> h
--         of slices of these lengths
-- open(c) -> h
--         with the open slices of the key; nil if it has no history
-- fetch(c, l, first, last)
--         Reads the closed slices with numbers first to last that are not known.
-- load_all(c, h) -> list, names
--         the fine slices that are not forgotten, oldest first, and the names of all fields
-- number(l, at) -> n
--         of the slice of a time
-- put_slice(h, l, n, t), forget(h, l, n)
--         Have a closed slice written, or deleted.
-- save(c, expires)
--         Writes c.own. Writes that need memory come first: without it nothing at all is
--         changed. Without a time at which the key expires, it does when it would have.
local unpack = table.unpack or unpack

local function layer(prefix, length) return {prefix = prefix, length = length, closed = {}} end

local function make(coarse, fine, since)
  return {coarse = layer('c', coarse), fine = layer('', fine), since = since, window = 0, till = 0, written = {}, stale = {}}
end

local function number(l, t) return math.floor(t / l.length) end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function field(l, n) return string.format('%s%d', l.prefix, n) end
local function value(l, t) return string.format('%d:%d', t.count, t.at - number(l, t.at) * l.length) end

local function tally(l, n, raw)
  local colon = string.find(raw, ':', 1, true)
  return {
    at = n * l.length + tonumber(string.sub(raw, colon + 1)),
    count = tonumber(string.sub(raw, 1, colon - 1)),
  }
end

-- Calls redis with many arguments, a thousand a call: unpack has a limit.
local function call(command, key, args)
  for i = 1, #args, 1000 do
    redis.call(command, key, unpack(args, i, math.min(i + 999, #args)))
  end
end

-- The numbers of a value.
local function numbers_of(raw)
  local v = {}
  for n in string.gmatch(raw, '[^:]+') do v[#v + 1] = tonumber(n) end
  return v
end

local function open(c)
  local opened, kept = unpack(redis.call('HMGET', c.key, 'open', 'kept'))
  if not opened then return nil end
  local o, k = numbers_of(opened), numbers_of(kept)
  local h = make(k[1], k[2], k[3])
  h.window, h.till, h.has_stale = k[4], k[5], k[6] == 1
  h.coarse.open = {at = o[1], count = o[2]}
  h.fine.open = {at = o[3], count = o[4]}
  h.kept = kept
  return h
end

local function fetch(c, l, first, last)
  local names, numbers = {}, {}
  for n = first, math.min(last, number(l, l.open.at) - 1) do
    if l.closed[n] == nil and not l.complete then
      names[#names + 1] = field(l, n)
      numbers[#numbers + 1] = n
    end
  end
  if #names == 0 then return end
  local values = redis.call('HMGET', c.key, unpack(names))
  for i, n in ipairs(numbers) do l.closed[n] = values[i] and tally(l, n, values[i]) end
end

-- Has a field written.
local function put(h, name, raw)
  h.written[#h.written + 1] = name
  h.written[#h.written + 1] = raw
end

local function put_slice(h, l, n, t)
  put(h, field(l, n), value(l, t))
  h.stale[field(l, n)] = nil
end

local function forget(h, l, n)
  l.closed[n] = false
  h.stale[field(l, n)] = true
end

local function save(c, expires)
  local h, gone = c.own, {}
  local coarse, fine = h.coarse.open, h.fine.open
  if fine then
    h.stale.open, h.stale.kept = nil, nil
    put(h, 'open', string.format('%d:%d:%d:%d', coarse.at, coarse.count, fine.at, fine.count))
    local kept = string.format('%d:%d:%d:%d:%d:%d', h.coarse.length, h.fine.length, h.since, h.window, h.till, h.has_stale and 1 or 0)
    if kept ~= h.kept then put(h, 'kept', kept) end
  end
  for name in pairs(h.stale) do gone[#gone + 1] = name end
  call('HSET', c.key, h.written)
  call('HDEL', c.key, gone)
  if expires then redis.call('PEXPIREAT', c.key, expires) end
  h.written, h.stale = {}, {}
end

local function earlier(a, b) return a.at < b.at end

local function load_all(c, h)
  local raw, all, names = redis.call('HGETALL', c.key), {}, {}
  for i = 1, #raw, 2 do
    names[raw[i]] = true
    local n = tonumber(raw[i])
    if n then
      local t = tally(h.fine, n, raw[i + 1])
      if t.at >= h.since then all[#all + 1] = t end
    end
  end
  all[#all + 1] = h.fine.open
  table.sort(all, earlier)
  return all, names
end

return {
  make = make, open = open, fetch = fetch, load_all = load_all, number = number,
  put_slice = put_slice, forget = forget, save = save,
}
