package template

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/caddyserver/caddy/v2"
)

// KeyOf returns the key of a request whose placeholders have these values, in order, and whether
// all of them are empty. Its errors do not quote the values.
func (k *Key) KeyOf(values []string) (key string, empty bool, err error) {
	if len(values) != k.Placeholders {
		return "", false, k.wrongNumber(len(values))
	}
	if k.Placeholders == 0 {
		return k.text, false, nil
	}
	if k.Single != "" {
		key = k.spell(k.Single, values[0], k.Spelling)
		if network, err := netip.ParsePrefix(key); err == nil && k.IsAddress() { // of a tier
			key = network.Masked().String()
		}
		return key, key == "", nil
	}
	empty = true
	key, err = caddy.NewEmptyReplacer().ReplaceFunc(k.text, func(name string, _ any) (any, error) {
		value := k.spell(name, values[0], k.spellings[name])
		values = values[1:]
		empty = empty && value == ""
		if k.Placeholders > 1 {
			value = strconv.Itoa(len(value)) + ":" + value
		}
		return value, nil
	})
	return key, empty, err
}

func (k *Key) wrongNumber(n int) error {
	switch {
	case k.Placeholders == 0:
		return errors.New("key: the zone counts all requests together; leave key and values out")
	case n == 0 && k.Placeholders == 1:
		return errors.New("key: required; send the value of the key's placeholder")
	case k.Placeholders == 1:
		return errors.New("values: the zone's key has one placeholder; send key")
	case n == 0:
		return fmt.Errorf("values: required; send the values of the key's %d placeholders, in order", k.Placeholders)
	}
	return fmt.Errorf("values: the zone's key has %d placeholders; send one value for each, in order", k.Placeholders)
}
