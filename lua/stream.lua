-- stream: the exact sliding-window log, readable. Twin of window/stream.go.
--
-- Key     a stream: an entry per request, with the id <ms>-<n> and the fields
--           cost    units of the request
--           total   running total of units, with this entry: the number of its last unit
--           gone    total of those that nobody looked at any more by then; the horizon
--                   (see horizon.lua), <window> or, unless till is 0, <window>:<till>; and,
--                   once units were given back, the id of the entry that says which
--           ...     the charge's fields
--         To give units of it back, an entry is deleted, or gets another cost; and those
--         behind it, if there are few, other totals. If there are many, they stay as they
--         are, and entries of cost 0 come behind them:
--           back, of   units that were given back, and the id of their entry
--           index      see below; the newest unit's ms follows the id in gone
--         An entry with nothing but cost 0 keeps the horizon of one that is deleted.
-- Options how long entries are kept, in ms, if longer than the longest window
--
-- Running totals make the count of any window the difference of two entries. What
-- is gone is noted, because it may be kept, and counts no more. The note goes with its
-- entry: if the newest is given back, a window that is raised before the next request is
-- admitted may see again what is kept.
--
-- What is given back before many entries is kept apart, and makes the difference of two
-- entries smaller. It is found by unit numbers, in two steps, so that neither a decision
-- nor a give-back looks at much:
--   index of a root   7 bytes of units given back; and for each leaf
--                     7 bytes  number of its first unit
--                     7 bytes  units given back before its own
--                     7 bytes  units given back up to and with its first mark
--                     6 bytes  ms of its id, and 4 bytes of what follows that
--   index of a leaf   marks: 7 bytes of the number of an entry's last unit; 7 of units
--                     given back, of it and of the leaf's earlier entries
-- To give back then replaces a leaf and the root. When the clock has stepped back, or
-- totals are too large, all entries are written anew, with what is left of them.
--
-- The key never ceases to exist while there is a unit to read: in a Cluster, a script
-- cannot write a key that it has deleted, if the slot of the key is being moved.
local stream, horizon = {fields = true}, module('horizon')

local unpack = table.unpack or unpack -- the name depends on the version of Lua
local call, floor, max, min = redis.call, math.floor, math.max, math.min
local from_bytes, to_bytes = struct.unpack, struct.pack

local root_head, root_item, leaf_mark = 7, 31, 14 -- bytes
local marks = 200      -- of a leaf, before it becomes two
local at_once = 1000   -- entries that are trimmed in a call
local looked_at = 200  -- entries of one time among which the charge's is looked for
local few = 50         -- entries that are written anew to give back units before them
local most = 2 ^ 53    -- units: above, they cannot be counted one by one

local function parse(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

-- Whole numbers above 10^14 lose digits in Lua's own formatting.
local function text(n) return string.format('%d', n) end

local function id_of(ms, seq) return text(ms) .. '-' .. text(seq) end

local function read(entry)
  local ms, seq = parse(entry[1])
  local fields = entry[2]
  local gone, window, till, root, newest = string.match(fields[6], '^(%d+) (%d+):?(%d*) ?(%S*) ?(%d*)$')
  return {
    last_ms = ms, ms = tonumber(newest) or ms, seq = seq, root = root ~= '' and root ~= '-' and root or nil,
    cost = tonumber(fields[2]), total = tonumber(fields[4]), gone = tonumber(gone),
    window = tonumber(window), till = tonumber(till) or 0,
  }
end

-- note(n) -> value of the field gone of an entry, without the id
local function note(n)
  if n.till > 0 then return string.format('%d %d:%d', n.gone, n.window, n.till) end
  return string.format('%d %d', n.gone, n.window)
end

-- Before any window, without units.
local function nothing() return {ms = -math.huge, last_ms = -math.huge, total = 0, gone = 0, window = 0, till = 0} end

-- The last entry up to the end of a millisecond, or nil.
local function last(c, ms)
  local entry = call('XREVRANGE', c.key, ms, '-', 'COUNT', 1)[1]
  return entry and read(entry)
end

-- The newest entry: its id, and the time of the newest unit.
local function newest(c)
  c.index, c.leaves = nil, nil
  return last(c, '+') or nothing()
end

-- When the key expires, with slack: never earlier than the ids say.
local function expires(c)
  local kept = c.now + c.option[1] + min(c.option[1], 100)
  return text(max(kept, tonumber(horizon.renewed(c, c.now, c.newest.window, c.newest.till))))
end

local function expire(c) call('PEXPIREAT', c.key, expires(c)) end

-- Writes an entry after the last.
local function write(c, ms, fields)
  local n = c.newest
  local seq = n.last_ms == ms and n.seq + 1 or 0
  call('XADD', c.key, id_of(ms, seq), unpack(fields))
  n.last_ms, n.seq = ms, seq
end

-- The index that an entry holds, or nil if it has gone: then all that it speaks of has.
local function index(c, id)
  local entry = call('XRANGE', c.key, id, id)[1]
  return entry and entry[2][8]
end

local function root(c)
  if not c.newest.root then return end
  c.index = c.index or index(c, c.newest.root)
  return c.index
end

local function leaf(c, id)
  c.leaves = c.leaves or {}
  if c.leaves[id] == nil then c.leaves[id] = index(c, id) or false end
  return c.leaves[id]
end

-- Returns what item i of the index of a root says.
local function item(root, i)
  local key, before, upto, ms, seq = from_bytes('>I7I7I7I6I4', root, root_head + i * root_item + 1)
  return {key = key, before = before, upto = upto, id = id_of(ms, seq)}
end

-- Returns the position, from 0, of the last of n things for which fits is true; -1 if it
-- is true of none. It is true of the first ones.
local function find(n, fits)
  local low, high = 0, n
  while low < high do
    local middle = floor((low + high) / 2)
    if fits(middle) then low = middle + 1 else high = middle end
  end
  return low - 1
end

-- Returns how many units were given back up to the last mark that fits.
local function back_up_to(c, fits)
  local root = root(c)
  if not root then return 0 end
  local n = (#root - root_head) / root_item
  local i = find(n, function(i)
    local of = item(root, i)
    return fits(of.key, of.upto)
  end)
  if i < 0 then return item(root, 0).before end
  local of = item(root, i)
  local leaf = leaf(c, of.id)
  if not leaf then
    if i + 1 < n then return item(root, i + 1).before end
    local all = from_bytes('>I7', root)
    return all
  end
  local j = find(#leaf / leaf_mark, function(j)
    local key, units = from_bytes('>I7I7', leaf, j * leaf_mark + 1)
    return fits(key, of.before + units)
  end)
  local _, units = from_bytes('>I7I7', leaf, j * leaf_mark + 1)
  return of.before + units
end

-- Returns how many units that were not given back have a number up to one. That is the
-- number of an entry's last unit.
local function left(c, number)
  return number - back_up_to(c, function(key) return key <= number end)
end

-- Returns the number of the nth unit of those that were not given back.
local function number(c, nth)
  return nth + back_up_to(c, function(key, back) return key - back < nth end)
end

-- Changes nothing: fails if the last id cannot be set, while all entries are there.
local function check_ids(c)
  call('XSETID', c.key, id_of(c.newest.last_ms, c.newest.seq))
end

-- Makes an id the last one, with no entry behind it. Ids can only grow, but for those
-- that the stream has forgotten: since Redis 7.2, they have to be above the largest that
-- was deleted, unless that is set. Reports whether it could.
local function reopen(c, id)
  pcall(call, 'XSETID', c.key, id_of(c.newest.last_ms, c.newest.seq), 'MAXDELETEDID', '0-1')
  return pcall(call, 'XSETID', c.key, id)
end

-- Writes all entries anew: change(ms) returns their new time, and running totals are lowered
-- by a number of units that were not given back.
local function rewrite(c, change, by)
  local entries, all = call('XRANGE', c.key, '-', '+'), {}
  for _, entry in ipairs(entries) do
    local e, fields = read(entry), entry[2]
    local total, units = left(c, e.total), 0
    if e.cost > 0 then units = total - left(c, e.total - e.cost) end
    if units > 0 then
      fields[2], fields[4], e.gone = units, max(0, total - by), max(0, left(c, e.gone) - by)
      all[#all + 1] = {ms = change(e.last_ms), fields = fields, entry = e}
    end
  end
  for j = 1, c.policies do
    c.base[j] = c.base[j] - by
    c.number[j] = c.base[j]
    if c.first[j] then c.first[j].total = left(c, c.first[j].total) - by end
  end
  local live = c.live - by
  expire(c) -- first: after it, want of memory stops nothing
  check_ids(c)
  call('XTRIM', c.key, 'MAXLEN', 0)
  if not reopen(c, '0-1') then call('UNLINK', c.key) end
  local window, till = c.newest.window, c.newest.till
  c.newest = nothing()
  for i, e in ipairs(all) do
    local entry = e.entry
    if i == #all then entry.window, entry.till = window, till end
    e.fields[6] = note(entry)
    write(c, e.ms, e.fields)
    c.newest.ms, c.newest.total, c.newest.gone = e.ms, e.fields[4], entry.gone
    c.newest.window, c.newest.till = entry.window, entry.till
  end
  c.index, c.leaves, c.live = nil, nil, live
end

-- Moves everything that lies in the future to now.
local function pull_back(c, now)
  if c.newest.last_ms > now then
    rewrite(c, function(ms) return min(ms, now) end, 0)
  end
end

-- The time until the k-th oldest unit of policy j leaves its window; the whole
-- window if there is no such unit.
local function leaves(c, now, j, k)
  local window, nth, first = c.window[j], c.base[j] + k, c.first[j]
  if not first or nth > c.live then return window end
  local unit = number(c, nth)
  if unit <= first.total then return window - (now - min(first.last_ms, now)) end
  local from, to = min(first.last_ms, c.newest.ms), c.newest.ms
  while from < to do
    local middle = floor((from + to) / 2)
    local entry = last(c, middle)
    if entry and entry.total >= unit then
      to = entry.last_ms
      if entry.total - entry.cost < unit then break end
    else
      from = middle + 1
    end
  end
  return window - (now - min(to, now))
end

-- Removes entries that are kept no longer, some at a time. Whole blocks of a hundred go
-- quickly; the rest is at most one of these, once there are no more.
local function trim(c, oldest)
  local gone = call('XTRIM', c.key, 'MINID', '~', oldest, 'LIMIT', at_once)
  if gone < at_once / 2 then call('XTRIM', c.key, 'MINID', '=', oldest) end
end

-- The first entry behind an edge, or nil, and the total of those that do not count since.
local function first_behind(c, edge)
  if c.newest.ms <= edge then return nil, c.newest.total end
  local first = read(call('XRANGE', c.key, max(0, edge + 1), '+', 'COUNT', 1)[1])
  return first, max(first.total - first.cost, c.newest.gone)
end

-- Adds an entry of n units now. c has been looked at.
local function add(c, now, n)
  pull_back(c, now)
  local window, till = horizon.after(c, now, c.newest.window, c.newest.till, function() return c.newest.ms >= 0 and c.newest.ms end)
  local gone = min(unpack(c.number)) -- that of the longest window
  if c.keep > c.looks then
    local _, number = first_behind(c, now - c.keep)
    gone = min(gone, number)
  end
  if c.newest.total > most - n then
    rewrite(c, function(ms) return ms end, left(c, gone))
    n, gone = min(n, most - c.newest.total), 0
    if n == 0 then return end
  end
  local oldest, root = max(0, now - max(c.keep, c.option[1]) + 1), c.newest.root
  local total, says = c.newest.total + n, note({gone = gone, window = window, till = till})
  if root and parse(root) >= oldest then says = says .. ' ' .. root end
  write(c, now, {'cost', n, 'total', total, 'gone', says, unpack(c.fields)})
  c.newest.ms, c.newest.total, c.newest.gone, c.live = now, total, gone, c.live + n
  c.newest.window, c.newest.till = window, till
  trim(c, text(oldest))
  expire(c)
end

function stream.look(c, now)
  c.now, c.newest = now, newest(c)
  c.base, c.number, c.first = {}, {}, {} -- units before a window, with and without those given back
  c.live, c.looks = left(c, c.newest.total), 0
  local fits = true
  for j = 1, c.policies do
    local number
    c.first[j], number = first_behind(c, now - c.window[j])
    c.number[j], c.base[j] = number, left(c, number)
    c.looks = max(c.looks, c.window[j])
    local left = c.limit[j] - (c.live - c.base[j])
    c.allowed[j] = c.cost == 0 or c.cost <= left
    c.remaining[j] = left
    fits = fits and c.allowed[j]
  end
  return fits
end

function stream.spend(c, now)
  add(c, now, c.cost)
  for j = 1, c.policies do
    c.remaining[j] = c.remaining[j] - c.cost
    c.retry[j], c.reset[j], c.effective[j] = 0, c.window[j], c.window[j]
    if c.remaining[j] == 0 then
      c.effective[j] = leaves(c, now, j, 1)
    end
  end
end

function stream.explain(c, now, repair)
  if repair then pull_back(c, now) end
  for j = 1, c.policies do
    local count = c.limit[j] - c.remaining[j]
    if c.allowed[j] then
      c.retry[j] = 0
    elseif c.cost > c.limit[j] then
      c.retry[j] = -1
    else
      c.retry[j] = leaves(c, now, j, c.cost - c.remaining[j])
    end
    c.reset[j] = 0
    if count > 0 then
      c.reset[j] = c.window[j] - (now - min(c.newest.ms, now))
    end
    c.effective[j] = leaves(c, now, j, max(1, 1 - c.remaining[j]))
    c.remaining[j] = max(0, c.remaining[j])
  end
end

-- Whether an entry holds the charge's fields, and no others.
local function is_alike(c, fields)
  if #fields ~= 6 + #c.fields then return false end
  for i, word in ipairs(c.fields) do
    if fields[6 + i] ~= word then return false end
  end
  return true
end

-- Takes up to n units from the entries of a time that are not gone: the latest first,
-- but before them the latest that are like the charge, for it was one of these. Where
-- there are many, it looks at some at a time. Returns what to take.
local function choose(c, at, n)
  local chosen, before = {}, text(at)
  repeat
    local entries = call('XREVRANGE', c.key, before, text(at), 'COUNT', looked_at)
    for _, alike in ipairs({true, false}) do
      for _, entry in ipairs(entries) do
        local e = n > 0 and read(entry)
        if e and e.cost > 0 and e.total > c.newest.gone and is_alike(c, entry[2]) == alike then
          local units = left(c, e.total) - left(c, e.total - e.cost)
          local taken = min(n, units)
          n = n - taken
          chosen[#chosen + 1] = {id = entry[1], number = e.total, units = taken, is_all = taken == units}
        end
      end
    end
    before = entries[1] and '(' .. entries[#entries][1]
  until n == 0 or not entries[looked_at]
  return chosen
end

-- Gives back what is chosen, if few entries come behind it: they are written anew.
-- Returns whether they were.
local function rewrite_few(c, chosen)
  if c.newest.root then return false end
  local taken, first = {}, chosen[1]
  for _, e in ipairs(chosen) do
    taken[e.id] = e.units
    if e.number < first.number then first = e end
  end
  local entries = call('XRANGE', c.key, first.id, '+', 'COUNT', few + 1)
  if entries[few + 1] then return false end
  pcall(call, 'PEXPIREAT', c.key, expires(c), 'GT') -- after it, want of memory stops nothing
  check_ids(c)
  local ids, back, n = {}, 0, c.newest
  for i, entry in ipairs(entries) do ids[i] = entry[1] end
  call('XDEL', c.key, unpack(ids))
  local top = call('XREVRANGE', c.key, '+', '-', 'COUNT', 1)[1]
  local same = reopen(c, top and top[1] or '0-1')
  for _, entry in ipairs(entries) do
    local id, fields = entry[1], entry[2]
    local taken = taken[id] or 0
    back = back + taken
    fields[2], fields[4] = fields[2] - taken, fields[4] - back
    if fields[2] > 0 then
      top = entry
      if same then call('XADD', c.key, id, unpack(fields)) else write(c, n.last_ms, fields) end
    end
  end
  if not top then
    call('UNLINK', c.key)
    return true
  end
  -- The next entry needs the horizon, and the last id that was given.
  local last = read(top)
  if not same or last.window ~= n.window or last.till ~= n.till then
    write(c, n.last_ms, {'cost', 0, 'total', n.total - back, 'gone', note(n) .. ' - ' .. text(last.ms)})
  end
  return true
end

-- Returns the items of the root, and how many units were given back up to the end. Leaves
-- that speak of units before the first entry are left out.
local function items(c, first)
  local root, all = root(c), {}
  if not root then return all, 0 end
  local n = (#root - root_head) / root_item
  for i = 0, n - 1 do all[i + 1] = item(root, i) end
  while all[2] and all[2].key <= first.total - first.cost do table.remove(all, 1) end
  local total = from_bytes('>I7', root)
  return all, total
end

-- Reads the marks of a leaf, each with its own units.
local function read_marks(c, of)
  of.marks = {}
  local leaf, before = leaf(c, of.id) or '', 0
  for j = 1, #leaf, leaf_mark do
    local key, units = from_bytes('>I7I7', leaf, j)
    of.marks[#of.marks + 1] = {key = key, units = units - before}
    before = units
  end
end

-- Marks n units of the entry whose last one has a number, in a list of items. total is what
-- was given back up to the end.
local function mark(c, all, total, number, n)
  local i = #all
  while i > 1 and all[i].key > number do i = i - 1 end
  local of = all[i]
  if not of then
    of = {key = number, before = 0, marks = {}}
    all[1], i = of, 1
  elseif not of.marks then
    read_marks(c, of)
    if not of.marks[1] then of.before = all[i + 1] and all[i + 1].before or total end -- it has gone
  end
  local list = of.marks
  local k = #list
  while k > 0 and list[k].key > number do k = k - 1 end
  if k > 0 and list[k].key == number then
    list[k].units = list[k].units + n
  else
    table.insert(list, k + 1, {key = number, units = n})
  end
  of.key = list[1].key
  for later = i + 1, #all do
    all[later].before, all[later].upto = all[later].before + n, (all[later].upto or 0) + n
  end
  if #list > marks then
    local half = {before = of.before, marks = {}}
    for k = marks / 2 + 1, #list do
      half.marks[#half.marks + 1], list[k] = list[k], nil
    end
    for k = 1, #list do half.before = half.before + list[k].units end
    half.key = half.marks[1].key
    table.insert(all, i + 1, half)
  end
end

-- Sets the indexes of leaves that have changed, and of the root. Returns the entries that
-- hold them, and the ids of those that they replace. `behind` entries are written before them.
local function pack_index(c, all, total, behind)
  local old, new, seq = {c.newest.root}, {}, c.newest.seq + behind
  local function add(index)
    seq = seq + 1
    new[#new + 1] = {index = index, id = id_of(c.newest.last_ms, seq)}
    return new[#new].id
  end
  local root = {to_bytes('>I7', total)}
  for i = 1, #all do
    local of = all[i]
    if of.marks then
      local parts, units = {}, 0
      for k = 1, #of.marks do
        units = units + of.marks[k].units
        parts[k] = to_bytes('>I7I7', of.marks[k].key, units)
      end
      of.upto = of.before + of.marks[1].units
      old[#old + 1] = of.id
      of.id = add(table.concat(parts))
      c.leaves = c.leaves or {}
      c.leaves[of.id] = new[#new].index
    end
    root[i + 1] = to_bytes('>I7I7I7I6I4', of.key, of.before, of.upto, parse(of.id))
  end
  c.index = table.concat(root)
  c.newest.root = add(c.index)
  return new, old
end

-- Returns the time of the newest of all units, which is not later than at, nor earlier
-- than the first entry: of what is before that, Redis would look through all.
local function newest_unit(c, at, first)
  if at == first.last_ms then return at end
  local before = last(c, text(at - 1))
  if left(c, before.total) < c.live then return at end
  local unit, from, to = number(c, c.live), first.last_ms, before.last_ms
  while from < to do
    local middle = floor((from + to) / 2)
    local entry = last(c, text(middle))
    if entry.total >= unit then to = entry.last_ms else from = middle + 1 end
  end
  return to
end

function stream.settle(c, now, at, delta)
  stream.look(c, now)
  if delta > 0 then
    add(c, now, delta)
    return
  end
  if at < 0 or at > c.newest.ms then return end
  local chosen = choose(c, at, -delta)
  if not chosen[1] or rewrite_few(c, chosen) then return end
  local first = read(call('XRANGE', c.key, '-', '+', 'COUNT', 1)[1])
  local all, total = items(c, first)
  local n, partly = c.newest, {}
  for _, e in ipairs(chosen) do
    mark(c, all, total, e.number, e.units)
    total, c.live = total + e.units, c.live - e.units
    if not e.is_all then partly[#partly + 1] = e end
  end
  local new, old = pack_index(c, all, total, #partly)
  if left(c, first.total - first.cost) == c.live then
    call('UNLINK', c.key)
    return
  end
  if at == n.ms then n.ms = newest_unit(c, at, first) end
  pcall(call, 'PEXPIREAT', c.key, expires(c), 'GT') -- after it, want of memory stops nothing
  local gone = note(n)
  for _, e in ipairs(partly) do
    write(c, n.last_ms, {'cost', 0, 'total', n.total, 'gone', gone, 'back', e.units, 'of', e.id})
  end
  for i, entry in ipairs(new) do
    local says = gone
    if i == #new then says = gone .. ' ' .. entry.id .. ' ' .. text(n.ms) end
    write(c, n.last_ms, {'cost', 0, 'total', n.total, 'gone', says, 'index', entry.index})
  end
  for _, e in ipairs(chosen) do
    if e.is_all then old[#old + 1] = e.id end
  end
  for _, id in ipairs(old) do call('XDEL', c.key, id) end
end

return stream
