// Package country owns the lookup of an IP address's country in a database file that the operator provides.
package country

import (
	"fmt"
	"net/netip"

	"github.com/oschwald/maxminddb-golang/v2"
)

// Database maps IP addresses to countries.
type Database struct{ r *maxminddb.Reader }

// Open opens a country database in MaxMind's format, such as GeoLite2 Country, DB-IP and IPinfo.
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

// Of returns the ISO 3166 code of an address's country, or "".
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
