package preview

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
)

// dnsLabelMax is the maximum length of a DNS label in bytes (RFC 1035 §2.3.4).
const dnsLabelMax = 63

var (
	pullLabel       = regexp.MustCompile(`^:([0-9]+)$`)
	likePull        = regexp.MustCompile(`^pr-[0-9]+$`)
	notLabel        = regexp.MustCompile(`[^a-z0-9]+`)
	deploymentLabel = regexp.MustCompile(`^[a-z0-9]{12}$`)
)

// previewLabel returns the DNS label of a branch; with the hyphens and the site's slug it fits into one label. It ends
// with a hash of the branch's name if the name is too long, would look like the label of a deployment or a pull
// request, or another branch has the label (hashed). A pull request's label is pr- and its number.
func previewLabel(branch, slug string, hashed bool) string {
	pull := pullLabel.FindStringSubmatch(branch)
	if pull != nil && !hashed {
		return "pr-" + pull[1]
	}
	label := strings.Trim(notLabel.ReplaceAllString(strings.ToLower(branch), "-"), "-")
	free := dnsLabelMax - len("--") - len(slug)
	reserved := len(label) == 2 // such as "xn--" (RFC 5890 §2.3.1)
	if !hashed && label != "" && !reserved && !likePull.MatchString(label) && len(label) <= free && !deploymentLabel.MatchString(label) {
		return label
	}
	sum := sha256.Sum256([]byte(branch))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:6]
	label = strings.TrimRight(label[:min(len(label), free-len(hash)-1)], "-")
	switch {
	case pull != nil:
		label = "pr"
	case label == "":
		label = "branch"
	}
	return label + "-" + hash
}
