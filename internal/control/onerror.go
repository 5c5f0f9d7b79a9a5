package control

// OnError says what happens to requests while the store is away.
type OnError string

// The words of on_error.
const (
	// OnErrorLocal decides on the counts of this process.
	OnErrorLocal OnError = "local"
	// OnErrorAllow lets requests pass.
	OnErrorAllow OnError = "allow"
	// OnErrorDeny refuses requests.
	OnErrorDeny OnError = "deny"
)

// OnErrors are all words of on_error, in the order in which errors name them.
var OnErrors = []OnError{OnErrorLocal, OnErrorAllow, OnErrorDeny}

// Local reports whether this process decides in the store's place.
func (o OnError) Local() bool { return o == OnErrorLocal }

// Open reports whether a request passes that was not decided on.
func (o OnError) Open() bool { return o == OnErrorAllow }
