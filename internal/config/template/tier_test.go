package template

import (
	"net/netip"
	"testing"
)

// The network of a key is that of its address, whatever the zone has grouped it by.
func TestNetworkOf(t *testing.T) {
	tier := Prefixes{24, 48}
	for key, want := range map[string]string{
		"192.0.2.7":           "192.0.2.0/24",
		"192.0.2.0/28":        "192.0.2.0/24",
		"2001:db8:a:b::/64":   "2001:db8:a::/48",
		"2001:db8:a:b:1:2::3": "2001:db8:a::/48",
		"":                    "",
		"anna":                "",
		"192.0.2":             "",
		"/24":                 "",
	} {
		got, ok := tier.NetworkOf(key)
		if got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", key, got, ok, want)
		}
		if ok && !tier.HasNetwork(got) || tier.HasNetwork(key) {
			t.Errorf("%q: %q is taken for a network of the tier, or its network is not", key, key)
		}
	}
	all := Prefixes{0, 0}
	if got, _ := all.NetworkOf("192.0.2.7"); got != "0.0.0.0/0" || !all.HasNetwork(got) {
		t.Errorf("the network of all: got %s", got)
	}
	for _, key := range []string{"192.0.2.1/24", "192.0.2.0/25", "2001:db8::/64", "2001:DB8::/48", "::ffff:192.0.2.0/120", "x/24", "192.0.2.0/024"} {
		if tier.HasNetwork(key) {
			t.Errorf("%s is taken for a network of %s", key, tier)
		}
	}
}

// No text makes it panic, what is read comes out in one spelling, and each address is in the network of its key.
func FuzzTier(f *testing.F) {
	f.Add("24/48", "192.0.2.7")
	f.Add("0/0", "2001:db8::/64")
	f.Add("032/0128", "[2001:db8::1]:80")
	f.Add("/", "/")
	f.Add("24/48/9", "::ffff:192.0.2.1%eth0")
	f.Fuzz(func(t *testing.T, text, value string) {
		tier, err := ParseTier(text)
		if err != nil {
			return
		}
		if again, err := ParseTier(tier.String()); err != nil || again != tier {
			t.Errorf("%q is %s, and that %s, %v", text, tier, again, err)
		}
		key := Prefixes{DefaultIPv4Prefix, DefaultIPv6Prefix}.group(value)
		network, ok := tier.NetworkOf(key)
		if !ok {
			return
		}
		prefix, err := netip.ParsePrefix(network)
		own, errOwn := netip.ParsePrefix(key)
		if errOwn != nil {
			address, _ := netip.ParseAddr(key)
			own = netip.PrefixFrom(address, address.BitLen())
		}
		if err != nil || !tier.HasNetwork(network) || own.IsValid() && prefix.Bits() <= own.Bits() && !prefix.Contains(own.Addr()) {
			t.Errorf("%q counts as %q in %s, of tier %s: %v", value, key, network, tier, err)
		}
	})
}
