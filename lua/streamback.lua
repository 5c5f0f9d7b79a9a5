-- streamback: which units of a stream were given back. They are kept apart if many entries come
-- behind them, and make the difference of two entries smaller. They are found by unit numbers,
-- in two steps, so that neither a decision nor a give-back looks at much. Indexes are fields of
-- entries: see streamentries.lua.
--
-- Root    7 bytes of units given back; and an item for each leaf:
--           7 bytes  number of its first unit
--           7 bytes  units given back before its own
--           7 bytes  units given back up to and with its first mark
--           6 bytes  ms of its id, and 4 bytes of what follows that
-- Leaf    marks: 7 bytes of the number of an entry's last unit; 7 of units given back,
--         of it and of the leaf's earlier entries
--
-- To give back then replaces a leaf and the root. When the clock has stepped back, or
-- totals are too large, all entries are written anew, with what is left of them.
--
-- left(c, total) -> units
--         that were not given back, of those with a number up to total
-- number(c, nth) -> number
--         of the nth unit of those that were not given back
-- items(c, first) -> list, total
--         the items of the root, and how many units were given back up to the end. Leaves that
--         speak of units before the first entry are left out.
-- mark(c, list, total, number, n)
--         Marks n units of the entry whose last one has a number.
-- pack_index(c, list, total, behind) -> new, old
--         the entries of the leaves that have changed, and of the root, as {index, id}; and the ids
--         of those that they replace. `behind` entries are written before them.
--
-- c.own holds
--   newest  the newest entry: see streamentries.lua
--   index   the index of its root, once it was read; leaves, those of leaves by id
local entries = module('streamentries')
local parse, id_of = entries.parse, entries.id_of
local call, floor = redis.call, math.floor
local from_bytes, to_bytes = struct.unpack, struct.pack

local root_head, root_item, leaf_mark = 7, 31, 14 -- bytes
local most_marks = 200 -- of a leaf, before it becomes two

-- The index that an entry holds, or nil if it has gone: then all that it speaks of has.
local function index(c, id)
  local entry = call('XRANGE', c.key, id, id)[1]
  return entry and entry[2][8]
end

-- The index of the root, or nil.
local function root_of(c)
  local own = c.own
  if not own.newest.root then return end
  own.index = own.index or index(c, own.newest.root)
  return own.index
end

-- The index of a leaf, or false.
local function leaf_of(c, id)
  local own = c.own
  own.leaves = own.leaves or {}
  if own.leaves[id] == nil then own.leaves[id] = index(c, id) or false end
  return own.leaves[id]
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
  local root = root_of(c)
  if not root then return 0 end
  local n = (#root - root_head) / root_item
  local i = find(n, function(i)
    local of = item(root, i)
    return fits(of.key, of.upto)
  end)
  if i < 0 then return item(root, 0).before end
  local of = item(root, i)
  local leaf = leaf_of(c, of.id)
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

local function left(c, total)
  return total - back_up_to(c, function(key) return key <= total end)
end

local function number(c, nth)
  return nth + back_up_to(c, function(key, back) return key - back < nth end)
end

local function items(c, first)
  local root, all = root_of(c), {}
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
  local leaf, before = leaf_of(c, of.id) or '', 0
  for j = 1, #leaf, leaf_mark do
    local key, units = from_bytes('>I7I7', leaf, j)
    of.marks[#of.marks + 1] = {key = key, units = units - before}
    before = units
  end
end

local function mark(c, all, total, key, n)
  local i = #all
  while i > 1 and all[i].key > key do i = i - 1 end
  local of = all[i]
  if not of then
    of = {key = key, before = 0, marks = {}}
    all[1], i = of, 1
  elseif not of.marks then
    read_marks(c, of)
    if not of.marks[1] then of.before = all[i + 1] and all[i + 1].before or total end -- it has gone
  end
  local list = of.marks
  local k = #list
  while k > 0 and list[k].key > key do k = k - 1 end
  if k > 0 and list[k].key == key then
    list[k].units = list[k].units + n
  else
    table.insert(list, k + 1, {key = key, units = n})
  end
  of.key = list[1].key
  for later = i + 1, #all do
    all[later].before, all[later].upto = all[later].before + n, (all[later].upto or 0) + n
  end
  if #list > most_marks then
    local half = {before = of.before, marks = {}}
    for k = most_marks / 2 + 1, #list do
      half.marks[#half.marks + 1], list[k] = list[k], nil
    end
    for k = 1, #list do half.before = half.before + list[k].units end
    half.key = half.marks[1].key
    table.insert(all, i + 1, half)
  end
end

local function pack_index(c, all, total, behind)
  local own = c.own
  local old, new, seq = {own.newest.root}, {}, own.newest.seq + behind
  local function add(text)
    seq = seq + 1
    new[#new + 1] = {index = text, id = id_of(own.newest.last_ms, seq)}
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
      own.leaves = own.leaves or {}
      own.leaves[of.id] = new[#new].index
    end
    root[i + 1] = to_bytes('>I7I7I7I6I4', of.key, of.before, of.upto, parse(of.id))
  end
  own.index = table.concat(root)
  own.newest.root = add(own.index)
  return new, old
end

return {left = left, number = number, items = items, mark = mark, pack_index = pack_index}
