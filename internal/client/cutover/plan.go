package cutover

import (
	"fmt"
	"io"
	"strings"
)

// Domain is a domain to be moved, as in API responses.
type Domain struct {
	Name, Status, SSLStatus string
	Verification, DNS       []Record
	Challenge               *Record // allows the certificate before the move; nil if the server answers no such challenge
	Problems                []struct{ Code, Message string }
	Certificate             struct{ LastError string }
}

// Record is a DNS record of a domain.
type Record struct {
	Type, Name, Value, Status string
	Current                   []string
	TTL                       int64 // seconds; 0: unknown
}

// expected lists the problems that every domain has before its move.
var expected = map[string]bool{"wrong_target": true, "no_answer": true}

// Stops lists what must be solved before the move.
func (d Domain) Stops() (out []string) {
	proved := len(d.Verification) == 0
	for _, r := range d.Verification {
		proved = proved || r.Status == "valid"
	}
	if !proved {
		r := d.Verification[0]
		out = append(out, fmt.Sprintf("ownership isn't verified: add the %s record %s with the value %s; it changes nothing for visitors",
			r.Type, r.Name, r.Value))
	}
	for _, p := range d.Problems {
		if !expected[p.Code] {
			out = append(out, p.Message)
		}
	}
	return out
}

// Site is the domain's new site.
type Site struct{ Name, Slug, URL string }

// Print writes the plan. printable makes untrusted text safe for a terminal.
func (d Domain) Print(out io.Writer, s Site, c Comparison, printable func(string) string) {
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("%s to %s (%s)", printable(d.Name), printable(s.Name), printable(s.URL))
	for _, stop := range d.Stops() {
		line("  stop: %s", printable(stop))
	}
	line("  %s", printable(d.certificate()))
	switch {
	case c.Unreachable:
		line("  pages: not compared, the old site doesn't answer")
	case c.Pages > 0:
		from := "no sitemap, the first page alone"
		if c.Sitemap {
			from = "of the sitemap"
		}
		if c.More {
			from = "the first of the sitemap"
		}
		line("  pages: %d compared (%s), %d different", c.Pages, from, len(c.Different))
		for _, x := range c.Different {
			line("    %s: old %s; new %s", printable(x.Path), answered(x.Old, printable), answered(x.New, printable))
		}
	}
	if d.Status == "active" {
		return
	}
	line("records to change:")
	for _, r := range d.DNS {
		text := now(r.Current, printable)
		if r.TTL > 0 {
			text += fmt.Sprintf(", TTL %d", r.TTL)
		}
		line("  %s %s: %s, now %s", printable(r.Type), printable(r.Name), printable(r.Value), text)
	}
	line("1. %s", d.lower())
	line("2. Change the records. Leave MX and TXT records as they are.")
	line("3. Follow it: slipway domains plan %s -s %s --watch 30m", printable(d.Name), printable(s.Slug))
	line("4. Keep the old site for 48 hours. To go back, set the records to what they are now.")
}

// certificate says when the certificate is issued.
func (d Domain) certificate() string {
	r := d.Challenge
	switch {
	case d.Status == "active":
		return "the domain is active here already; certificate: " + d.SSLStatus
	case d.SSLStatus == "active":
		return "certificate: ready"
	case r == nil:
		return "the certificate is issued once the records point here"
	case r.Status != "valid":
		return fmt.Sprintf("certificate: issued once the records point here, or before that with the record %s %s: %s", r.Type, r.Name, r.Value)
	case d.Certificate.LastError != "":
		return "certificate: " + d.Certificate.LastError
	}
	return "certificate: being issued"
}

// lowTTL is the recommended TTL during the move, in seconds.
const lowTTL = 60

// lower says how to lower the records' TTL and how long resolvers keep the old values.
func (d Domain) lower() string {
	longest, known, found := int64(0), true, false
	for _, r := range d.DNS {
		if len(r.Current) > 0 {
			longest, known, found = max(longest, r.TTL), known && r.TTL > 0, true
		}
	}
	switch {
	case !found:
		return "There is no TTL to lower: the records are new."
	case !known:
		return fmt.Sprintf("Lower the TTL of these records to %d seconds, and wait as long as the old TTL was.", lowTTL)
	case longest <= lowTTL:
		return fmt.Sprintf("The TTL is low: visitors follow within %s. If you have just lowered it, wait as long as the old TTL was.",
			lasting(longest))
	}
	return fmt.Sprintf("Lower the TTL of these records from %d to %d seconds, and wait %s: that long others keep the old one.",
		longest, lowTTL, lasting(longest))
}

// lasting formats a duration, rounded up.
func lasting(seconds int64) string {
	n, unit := seconds, "second"
	switch {
	case seconds >= 2*3600:
		n, unit = (seconds+3599)/3600, "hour"
	case seconds >= 2*60:
		n, unit = (seconds+59)/60, "minute"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// answered describes a page's response.
func answered(p Page, printable func(string) string) string {
	switch {
	case p.Status == 0:
		return "no answer"
	case p.To != "":
		return fmt.Sprintf("%d to %s", p.Status, printable(p.To))
	}
	return fmt.Sprintf("%d \"%s\"", p.Status, printable(p.Title))
}

func now(current []string, printable func(string) string) string {
	if len(current) == 0 {
		return "none"
	}
	return printable(strings.Join(current, ", "))
}
