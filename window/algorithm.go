package window

import "fmt"

// Algorithm is a way to keep the history of a key: Zset, Log, Stream, Slices, Layers, GCRA or Concurrent. Its
// properties are in the table of facts.go. Each has a twin in package lua, under the same name,
// that makes the same decisions. No other package can have an algorithm, for a store on Redis
// needs the twin.
type Algorithm interface {
	// Name is the word for it in scripts and names of counters, and in configuration,
	// where Layers are slices.
	Name() string

	// options are what the Lua twin has to know beyond the policies.
	options() []int64
	// check reports what is wrong with the options, checkPolicy what is wrong with a policy
	// that is valid by itself, in words for an operator.
	check() error
	checkPolicy(Policy) error
	// atOnce returns how many units may pass at once.
	atOnce(Policy) int64

	// These are the methods of History. The one that is given may be written to, as append
	// does: it is of no use any more.
	look(h History, now int64, c *Charge, ds []Decision) bool
	spend(h History, now int64, c *Charge, ds []Decision) History
	explain(h History, now int64, c *Charge, ds []Decision, repair bool) History
	giveBack(h History, now int64, c *Charge, at, units int64) History
	chargeMore(h History, now int64, c *Charge, units int64) History
	empty(h History) bool
	newest(h History) (at int64, ok bool)
	until(h History) int64

	facts() *Facts
}

// usual is what most algorithms have in common.
type usual struct{}

func (usual) options() []int64             { return nil }
func (usual) check() error                 { return nil }
func (usual) checkPolicy(Policy) error     { return nil }
func (usual) atOnce(p Policy) int64        { return p.Limit }
func (usual) newest(History) (int64, bool) { return 0, false }
func (usual) until(History) int64          { return 0 }

// AtOnce returns how many units may pass at once.
func (p Policy) AtOnce(a Algorithm) int64 { return a.atOnce(p) }

// CheckAlgorithm reports what is wrong with the options of an algorithm, in words for an operator.
func CheckAlgorithm(a Algorithm) error { return a.check() }

// CheckPolicy reports why the algorithm cannot keep a policy that is valid by
// itself, in words for an operator.
func CheckPolicy(a Algorithm, p Policy) error { return a.checkPolicy(p) }

// CheckPack reports why counters of algorithm a with this number of policies cannot be
// packed, in words for an operator. It returns nil if expected, the number of keys, is 0:
// counters are not packed then.
func CheckPack(a Algorithm, policies int, expected int64) error {
	if expected == 0 {
		return nil
	}
	if expected < 0 {
		return fmt.Errorf("pack %d is negative; write how many keys are expected", expected)
	}
	most, err := a.facts().Pack(a)
	if err != nil {
		return fmt.Errorf("pack %d: %w", expected, err)
	}
	if policies > most {
		return fmt.Errorf("pack %d: %d limits are too many, %d is the most with %s; take out some, or pack", expected, policies, most, a.Name())
	}
	return nil
}
