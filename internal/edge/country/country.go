// Package country owns the lookup of the country that an address is in, in a file of the
// operator's.
package country

import (
	"fmt"
	"net/netip"

	"github.com/oschwald/maxminddb-golang/v2"
)

// Database says where addresses are.
type Database struct{ r *maxminddb.Reader }

// Open opens a database of where addresses are, in MaxMind's format, as GeoLite2
// Country, DB-IP and IPinfo publish it.
func Open(file string) (*Database, error) {
	r, err := maxminddb.Open(file)
	if err != nil {
		return nil, err
	}
	if r.Metadata.IPVersion != 4 && r.Metadata.IPVersion != 6 {
		return nil, fmt.Errorf("%s holds no addresses", file)
	}
	return &Database{r}, nil
}

// Of returns the ISO 3166 code of the country that an address is in, or nothing.
func (d *Database) Of(a netip.Addr) string {
	var code string
	found := d.r.Lookup(a)
	if !found.Found() || found.DecodePath(&code, "country", "iso_code") != nil {
		return ""
	}
	if code == "" && found.DecodePath(&code, "country_code") != nil {
		return ""
	}
	if len(code) != 2 {
		return ""
	}
	return code
}
