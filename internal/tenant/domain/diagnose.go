package domain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"slipway/internal/platform/text"
)

// claim holds the expected state of a name.
type claim struct {
	name       string
	token      string // the account's
	target     string // the site's host name
	below      string // parent domain of all sites
	delegation string // required target of the ACME challenge's CNAME; empty if DNS challenges are unavailable
	public     bool   // certificates come from authorities that honor CAA
	uncertain  bool   // a wildcard for which certificates are unavailable
	rival      string // reason why a CNAME record doesn't prove the name; empty: it does
	proven     bool   // already proven, so the proof may be absent
}

// diagnosis is the result of comparing an observation with a claim.
type diagnosis struct {
	findings
	proof     string // txt or cname; empty: none found
	points    bool   // visitors of the name arrive here, as far as known
	unknown   bool   // address queries failed, so points is meaningless
	delegated bool   // a wildcard's challenge is delegated correctly, or needn't be
	ahead     bool   // another name's challenge is delegated, so its certificate can be issued before it points here
	quiet     bool   // challenge queries failed
	reason    string // why it can't be active
}

// diagnose compares an observation with a claim. It is a pure function.
func diagnose(c claim, s observed) diagnosis {
	var j diagnosis
	j.verification(c, s)
	j.pointing(c, s)
	j.certification(c, s)
	j.challenge(c, s)
	if j.proof == "" && !c.proven {
		j.reason = "Waiting for verification: " + lower(j.Verification[0].Reason)
	}
	return j
}

// verification fills in the records that prove ownership.
func (j *diagnosis) verification(c claim, s observed) {
	txt := Record{Type: "TXT", Name: proofName(c.name), Required: c.token, Current: clips(s.tokens), Status: RecordPending}
	switch {
	case slices.Contains(s.tokens, c.token):
		txt.Status, j.proof = RecordValid, "txt"
	case s.strayAt != "":
		txt.Status = RecordInvalid
		txt.Reason = fmt.Sprintf("The value was found at %s. Move the TXT record to %s", s.strayAt, txt.Name)
		if zone := zoneOf(strings.TrimPrefix(c.name, "*.")); s.strayAt == txt.Name+"."+zone {
			txt.Reason += fmt.Sprintf(". Your DNS provider adds %s itself: enter the name as %s", zone,
				strings.TrimSuffix(txt.Name, "."+zone))
		}
		j.problem("wrong_name", txt.Reason)
	case s.tokenErr != nil:
		txt.Reason = "The name servers of " + txt.Name + " are not responding"
	case len(s.tokens) > 0:
		txt.Status = RecordInvalid
		txt.Reason = fmt.Sprintf("The TXT record %s does not hold this account's value %s", txt.Name, c.token)
	default:
		txt.Reason = fmt.Sprintf("Add a TXT record %s with the value %s", txt.Name, c.token)
	}
	if txt.Status != RecordValid && c.rival != "" {
		txt.Reason += ". " + c.rival
	}
	j.Verification = []Record{txt}
	for _, t := range s.tokens {
		if t != c.token && strings.HasPrefix(t, tokenPrefix) && txt.Status == RecordValid {
			j.problem("foreign_token",
				fmt.Sprintf("%s also holds the value of another account: remove it unless that account also uses the name", txt.Name))
			break
		}
	}
	if c.rival != "" || strings.HasPrefix(c.name, "*.") {
		return
	}
	alias := Record{Type: "CNAME", Name: c.name, Required: c.target, Status: RecordPending}
	if s.cname != "" {
		alias.Current = []string{text.Clip(s.cname, 300)}
	}
	switch {
	case s.cname == c.target:
		alias.Status = RecordValid
		if j.proof == "" {
			j.proof = "cname"
		}
	case s.addrErr != nil:
		alias.Reason = "The name servers of " + c.name + " are not responding"
	case s.cname != "":
		alias.Status = RecordInvalid
		alias.Reason = fmt.Sprintf("%s is an alias of %s", c.name, text.Clip(s.cname, 300))
	default:
		alias.Reason = fmt.Sprintf("Or make %s a CNAME of %s", c.name, c.target)
	}
	// A registrable name can't have a CNAME beside its SOA (RFC 1034 §3.6.2).
	if j.proof == "cname" {
		j.Verification[0].Reason = "Not required: the CNAME record verifies ownership"
	}
	if c.name != zoneOf(c.name) || s.cname != "" {
		j.Verification = append(j.Verification, alias)
	}
}

// pointing fills in the records that route visitors here.
func (j *diagnosis) pointing(c claim, s observed) {
	alias := Record{Type: "CNAME", Name: c.name, Required: c.target, Status: RecordPending}
	if s.cname != "" {
		alias.Current, alias.TTL = []string{text.Clip(s.cname, 300)}, s.ttl
	}
	apex := c.name == zoneOf(c.name)
	if s.addrErr != nil {
		j.unknown = true
		alias.Reason = "The name servers of " + c.name + " are not responding"
		j.problem("no_answer", alias.Reason)
		j.reason = alias.Reason
		j.DNS = []Record{alias}
		if apex {
			j.DNS = addressRecords(c, s, alias.Reason)
		}
		return
	}
	if s.mute != "" {
		j.problem("no_answer",
			fmt.Sprintf("The name servers of %s do not answer about %s records: some "+
				"visitors and certificate authorities can't connect", c.name, s.mute))
	}
	for _, host := range s.chain {
		if host == c.target || strings.HasSuffix(host, "."+c.below) {
			alias.Status, j.points = RecordValid, true
			j.DNS = []Record{alias}
			return
		}
	}
	var foreign []netip.Addr
	ours := 0
	for _, a := range s.addrs {
		if slices.Contains(s.ours, a) {
			ours++
		} else {
			foreign = append(foreign, a)
		}
	}
	network := ""
	for _, host := range s.chain {
		network = cmp.Or(network, cdnOfName(host))
	}
	covered := 0
	for _, a := range foreign {
		if n := cdnOf(a); n != "" {
			network = cmp.Or(network, n)
			covered++
		}
	}
	switch {
	case len(s.addrs) == 0 && s.cname != "":
		alias.Status = RecordInvalid
		alias.Reason = fmt.Sprintf("%s is an alias of %s, which doesn't resolve", c.name, text.Clip(s.cname, 300))
		j.problem("wrong_target", alias.Reason)
	case len(s.addrs) == 0 && s.hidden != "":
		alias.Reason = fmt.Sprintf(
			"%s has no address: the wildcard %s doesn't apply to it because a record exists below it, such as the verification TXT "+
				"record. Make %s a CNAME of %s",
			c.name, s.hidden, c.name, c.target,
		)
		j.problem("hidden_wildcard", alias.Reason)
	case len(s.addrs) == 0:
		alias.Reason = fmt.Sprintf("%s has no address yet: make it a CNAME of %s", c.name, c.target)
		if apex {
			alias.Reason = fmt.Sprintf("%s has no address yet", c.name)
		}
	case len(foreign) == 0:
		alias.Status, j.points = RecordValid, true
	case network != "" && (covered == len(foreign) || cdnOfAny(s.chain)):
		// The origin behind a CDN is unknown, but ownership was proven otherwise.
		alias.Status, j.points = RecordValid, true
		alias.Reason = fmt.Sprintf("%s is served through %s: set %s as the origin there", c.name, network, c.target)
		j.problem("cdn",
			alias.Reason+". Let it connect by HTTPS (at Cloudflare: SSL mode Full): where it connects by plain HTTP, as in the mode "+
				"Flexible, visitors are redirected forever (ERR_TOO_MANY_REDIRECTS)")
	case ours > 0 && !slices.ContainsFunc(foreign, netip.Addr.Is4):
		alias.Status = RecordInvalid
		alias.Reason = fmt.Sprintf(
			"The A record is correct, but the AAAA record points to %s. IPv6 visitors and certificate authorities go there",
			join(foreign),
		)
		j.problem("ipv6_mismatch", alias.Reason)
	case ours > 0:
		alias.Status = RecordInvalid
		alias.Reason = fmt.Sprintf("%s points here, but also to %s. Remove the other records", c.name, join(foreign))
		j.problem("mixed_addresses", alias.Reason)
	default:
		alias.Status = RecordInvalid
		alias.Reason = fmt.Sprintf("%s points to %s, which is not this service", c.name, join(foreign))
		j.problem("wrong_target", alias.Reason)
	}
	j.reason = alias.Reason
	if j.points {
		j.reason = ""
	}
	// List addresses if an alias is impossible or the owner chose addresses.
	if apex || len(s.addrs) > 0 && s.cname == "" {
		j.DNS = addressRecords(c, s, alias.Reason)
		return
	}
	j.DNS = []Record{alias}
}

// addressRecords compares the addresses of each family with ours.
func addressRecords(c claim, s observed, reason string) []Record {
	var out []Record
	for _, family := range []struct {
		kind string
		is   func(netip.Addr) bool
	}{{"A", netip.Addr.Is4}, {"AAAA", netip.Addr.Is6}} {
		var have, want []string
		wrong, cdn := false, true
		for _, a := range s.addrs {
			if family.is(a) {
				have = append(have, a.String())
				wrong = wrong || !slices.Contains(s.ours, a)
				cdn = cdn && cdnOf(a) != ""
			}
		}
		for _, a := range s.ours {
			if family.is(a) {
				want = append(want, a.String())
			}
		}
		if len(have) == 0 && len(want) == 0 || family.kind == "AAAA" && len(have) == 0 {
			continue // an AAAA record is optional
		}
		r := Record{Type: family.kind, Name: c.name, Current: clips(have), Status: RecordPending}
		if len(have) > 0 {
			r.TTL = s.ttl
		}
		if len(want) > 0 { // any of the addresses satisfies the record
			r.Required = want[0]
		}
		switch {
		case len(have) == 0:
			r.Reason = cmp.Or(reason, "No record yet")
		case !wrong:
			r.Status = RecordValid
		case cdn:
			r.Status, r.Reason = RecordValid, reason
		case len(want) == 0:
			r.Status, r.Reason = RecordInvalid, "Remove this record: the service has no address of this kind"
		default:
			r.Status, r.Reason = RecordInvalid, reason
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		out = []Record{{Type: "A", Name: c.name, Required: "the address of " + c.target, Status: RecordPending, Reason: reason}}
	}
	return out
}

func (j *diagnosis) problem(code, message string) {
	j.Problems = append(j.Problems, Problem{code, message})
}

func cdnOfAny(chain []string) bool {
	return slices.ContainsFunc(chain, func(h string) bool { return cdnOfName(h) != "" })
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return x == s })
}

func join(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs[:min(len(addrs), 4)] {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

// clips limits untrusted values for storage to 8 of 255 bytes.
func clips(list []string) []string {
	out := []string{}
	for _, s := range list[:min(len(list), 8)] {
		if len(s) > 255 {
			s = strings.ToValidUTF8(s[:252], "") + "…"
		}
		out = append(out, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return out
}

func lower(s string) string {
	if s == "" || s[0] < 'A' || s[0] > 'Z' {
		return s
	}
	return string(s[0]-'A'+'a') + s[1:]
}
