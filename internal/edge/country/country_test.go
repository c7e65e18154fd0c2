package country

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// countryFile writes a MaxMind DB 2.0 file in which 127.0.0.0/8 is in Austria: a search tree of 24-bit records, data
// and metadata.
func countryFile(t *testing.T) string {
	t.Helper()
	table := func(n int) string { return string([]byte{7<<5 | byte(n)}) }
	str := func(s string) string { return string([]byte{2<<5 | byte(len(s))}) + s }
	short := func(n byte) string { return string([]byte{5<<5 | 1, n}) }
	const nodes, bits = 8, 0x7f
	var b []byte
	for i := range nodes {
		next := byte(i + 1)
		if i == nodes-1 {
			next = nodes + 16 // pointer to the start of the data
		}
		record := [2]byte{nodes, nodes} // both sides: not found
		record[bits>>(7-i)&1] = next
		b = append(b, 0, 0, record[0], 0, 0, record[1])
	}
	b = append(b, make([]byte, 16)...)
	b = append(b, table(1)+str("country")+table(1)+str("iso_code")+str("AT")...)
	b = append(b, "\xab\xcd\xefMaxMind.com"...)
	b = append(b, table(9)+str("node_count")+string([]byte{6<<5 | 1, nodes})+str("record_size")+short(24)+str("ip_version")+short(4)+
		str("database_type")+str("Test-Country")+str("languages")+string([]byte{0, 4})+str("binary_format_major_version")+short(2)+
		str("binary_format_minor_version")+short(0)+str("build_epoch")+string([]byte{1, 2, 1})+str("description")+table(0)...)
	file := filepath.Join(t.TempDir(), "countries.mmdb")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCountries(t *testing.T) {
	t.Parallel()
	of, err := Open(countryFile(t))
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{
		"127.0.0.1":   "AT",
		"127.255.1.2": "AT",
		"126.0.0.1":   "",
		"203.0.113.9": "",
		"2001:db8::1": "",
	} {
		if got := of.Of(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	for _, text := range []string{"", "no database at all"} {
		file := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(file); err == nil {
			t.Errorf("%q is taken for a database", text)
		}
	}
}
