package domain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/text"
)

// certification reports CAA and wildcard problems that will prevent a certificate.
func (j *diagnosis) certification(c claim, s observed) {
	permitted := strings.Join(clips(without(s.caa, "")), ", ")
	switch {
	case s.caaErr != nil && !c.public:
	case s.caaErr != nil:
		j.problem("caa", "The name servers are not responding to CAA queries. Certificate authorities will refuse to issue")
	case s.caaName == "" || slices.ContainsFunc(s.caa, func(ca string) bool { return slices.Contains(s.cas, ca) }):
	case len(s.cas) > 0:
		j.problem("caa",
			fmt.Sprintf("The CAA records of %s permit %s: add one that permits %s", s.caaName, cmp.Or(permitted,
				"nobody"), s.cas[0]))
	case !c.public:
		j.problem("caa",
			fmt.Sprintf("The CAA records of %s permit %s, and certificates come from this "+
				"installation's local authority here", s.caaName, cmp.Or(permitted, "nobody")))
	case permitted == "":
		j.problem("caa", fmt.Sprintf("The CAA records of %s permit no authority: remove them", s.caaName))
	default:
		j.problem("caa",
			fmt.Sprintf("The CAA records of %s permit %s alone: if that is not the "+
				"authority that is used here, it will refuse", s.caaName, permitted))
	}
}

// challenge reports whether authorities will find the DNS challenge. Wildcards require it; for other names it allows a
// certificate before visitors arrive.
func (j *diagnosis) challenge(c claim, s observed) {
	j.delegated = true
	if c.uncertain {
		j.problem("no_wildcards",
			"This installation does not issue wildcard certificates: add the names you need one by one, or ask the operator")
	}
	if c.delegation == "" {
		return
	}
	r := Record{
		Type:     "CNAME",
		Name:     challengeName(c.name),
		Required: c.delegation,
		Current:  clips(s.challenge[:min(len(s.challenge), 1)]),
		Status:   RecordPending,
	}
	wild := strings.HasPrefix(c.name, "*.")
	switch {
	case slices.Contains(s.challenge, c.delegation):
		r.Status = RecordValid
	case s.challengeErr != nil:
		r.Reason = "The name servers of " + r.Name + " are not responding"
	case len(s.challenge) > 0:
		r.Status = RecordInvalid
		r.Reason = fmt.Sprintf("%s is a CNAME of %s: make it a CNAME of %s", r.Name, text.Clip(s.challenge[0], 300), c.delegation)
	default:
		r.Reason = fmt.Sprintf("Make %s a CNAME of %s, and remove its other records", r.Name, c.delegation)
	}
	if !wild {
		j.Challenge, j.ahead, j.quiet = &r, r.Status == RecordValid, s.challengeErr != nil
		return
	}
	j.DNS = append(j.DNS, r)
	j.delegated = r.Status == RecordValid
	if j.delegated {
		return
	}
	j.problem("challenge", "No certificate is issued for a wildcard until its verification record is found. "+r.Reason)
}
