package control

import (
	"fmt"

	"go.uber.org/zap"
)

// maxWhy is the longest text of Why, in bytes. It is logged.
const maxWhy = 200

// Why is what an operator says of a change, for the log.
type Why struct {
	Reason string `json:"reason,omitempty"`
	// The operator who asks for the change. Default: the address that the admin endpoint sees.
	By string `json:"by,omitempty"`
}

// Fields returns what the log says of the change.
func (w Why) Fields() []zap.Field {
	return []zap.Field{zap.String("by", w.By), zap.String("reason", w.Reason)}
}

func (w Why) check() error {
	switch {
	case len(w.Reason) > maxWhy:
		return fmt.Errorf("reason: longer than %d bytes", maxWhy)
	case len(w.By) > maxWhy:
		return fmt.Errorf("by: longer than %d bytes", maxWhy)
	}
	return nil
}
