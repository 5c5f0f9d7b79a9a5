package redis_test

import "time"

// patience is how long a server may take to do as it was told.
const patience = 10 * time.Second
