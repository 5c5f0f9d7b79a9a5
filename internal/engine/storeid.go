package engine

// StoreID tells stores apart by what they count: stores with one StoreID share counters.
type StoreID struct {
	// Name is the name of the store, as operators see it.
	Name string
	// Group tells stores of one name apart whose counters have names under different secrets. 0: no secret.
	Group int
}

// ZoneID tells the counters of zones apart, beside their keys: zones with one ZoneID share counters.
type ZoneID struct {
	Store StoreID
	Zone  string // its name
}

// Fingerprinter is implemented by stores of which two with one name can keep different counters, as secrets are part of
// the names of counters.
type Fingerprinter interface {
	// Fingerprints returns one for each secret, the current one first, and none without a secret. Stores of one name
	// share counters if they have a fingerprint in common. Fingerprints stay in this process.
	Fingerprints() []string
}
