package main

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// allowed lists the licenses of what Slipway may ship.
var allowed = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "OFL-1.1", "Unlicense", "0BSD", "blessing", "MIT-0", "CC0-1.0"}

// texts has the licenses' texts, as NAME.txt or NAME.variant.txt. Where one has names of people, a text has @@ for up to thirty words.
//
//go:embed texts
var texts embed.FS

// patterns are regular expressions for the words of each text, by license.
var patterns = func() map[string][]*regexp.Regexp {
	all := map[string][]*regexp.Regexp{}
	files, err := texts.ReadDir("texts")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		text, err := texts.ReadFile(path.Join("texts", f.Name()))
		if err != nil {
			panic(err)
		}
		var words []string
		for i, part := range strings.Split(string(text), "@@") {
			if i > 0 {
				words = append(words, `(?:\S+ ){0,30}?`)
			}
			words = append(words, regexp.QuoteMeta(normal(part)))
		}
		id := strings.TrimSuffix(f.Name(), ".txt")
		if name, _, variant := strings.Cut(id, ".variant"); variant {
			id = name
		}
		all[id] = append(all[id], regexp.MustCompile("^"+strings.Join(words, "")+"$"))
	}
	return all
}()

var (
	noise  = regexp.MustCompile(`[^a-z0-9]+`)
	marker = regexp.MustCompile(`(?m)^\s*(\*|-|o|\(?[0-9a-z][.)])\s+`) // of list items
)

// normal returns a text's words in lower case, each followed by a space, without list markers.
func normal(text string) string {
	text = marker.ReplaceAllString(text, "")
	text = strings.TrimSpace(noise.ReplaceAllString(strings.ToLower(text), " "))
	if text == "" {
		return ""
	}
	return text + " "
}

// heading matches lines before and after a license's text: empty lines, its name, and copyright notices.
var heading = regexp.MustCompile(`(?i)^\W*(` +
	`(portions |(original|modified) work )?(copyright|©|\(c\))\b.*|.*\ball rights reserved\W*|` +
	`(the )?(mit|isc|(2|3|two|three)[- ]clause )?\W*bsd( |-)?((2|3|two|three)-clause)?( "?(new|simplified|revised)"?)*( or "?(new|simplified|revised)"?)*( license)?|` +
	`(the )?(mit|isc)( license| no attribution)?( \((the )?(mit|expat)( license)?\))?|license|` +
	`authors?:.*|<?[\w.+-]+@[\w.-]+>?|)\W*$`)

// identify returns the SPDX name of a text's license, or "" for a notice without a license.
func identify(name, text string) (string, error) {
	if id, ok := reviewed[fmt.Sprintf("%x", sha256.Sum256([]byte(text)))]; ok {
		return id, nil
	}
	if upper := strings.ToUpper(name); strings.HasPrefix(upper, "NOTICE") {
		return "", nil
	}
	lines := strings.Split(text, "\n")
	for len(lines) > 0 && heading.MatchString(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && heading.MatchString(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	words := normal(strings.Join(lines, "\n"))
	for id, all := range patterns {
		for _, p := range all {
			if p.MatchString(words) || p.MatchString(normal(text)) {
				if !slices.Contains(allowed, id) {
					return id, fmt.Errorf("its license %s isn't one that Slipway may ship", id)
				}
				return id, nil
			}
		}
	}
	return "", errors.New("this text isn't known: see scripts/licenses/identify.go")
}

// reviewed maps the SHA-256 of texts that were reviewed by a person to their licenses: several licenses in one file, or
// one with additional text. A notice has none.
var reviewed = map[string]string{
	"14088888f59c8feb910cb6cad319c6f5cddc751201662f3c09ac7b3d4ae04bfa": "blessing",                              // SQLite: public domain
	"2728f4d067c60d35428020435045d9a8340391082b792d9529fa52bfa4f40993": "",                                      // the patent grant of Go
	"2ab6c959535d2fc6c6da2cf209cc724e836a0c0c35c433d7a09c8c6211528ba0": "MIT AND BSD-3-Clause AND Apache-2.0",   // sigs.k8s.io/yaml
	"77b00d378fa8a729f1b99b0a84fbbd081c7950ebcabb6406f6a2d2a9a46d5ca6": "",                                      // sources of modernc.org/sqlite
	"954cbb4a32ff3af374a01ae20ab200e4b7af27380bb1d03b4270cd50240e248a": "Apache-2.0 AND BSD-3-Clause",           // sigs.k8s.io/json
	"a387ca71c7aabd58fc62bd0cf0ba19e33bc0577fa4b19eae8bfa77d960167c90": "MIT",                                   // go-humanize: with an address
	"ad456c7bd0029fd09d22666d45c74136ae590c2ff88bb4fed8596eca838d8c81": "MIT AND Apache-2.0",                    // go.yaml.in/yaml/v3
	"b44ebe8e40a64ea5adb3ca1b3764039f4bb6fcdceeffed64aa9575b20622ee37": "CC0-1.0",                               // blake3: with an introduction
	"ba479c17e31e6180d9b6f53cbea93a7fbe838baba13a6f3ad1b08a8163797212": "BSD-3-Clause AND Apache-2.0 AND MIT",   // klauspost/compress
	"bfe1e5d7dd50372dc9a580b1e31ce9bdaa5541a39b1ccf4874fdad2bfb92c89e": "OFL-1.1",                               // Inter
	"c4746cb753cbf5b3eeccca866eed37b9c98719901fa92c71b488597fa15623a5": "MIT",                                   // libyaml in yaml/v2
	"c615fb76b7891c9b36b0e352c111d5a2fe77c0111e4129a23659b25b26c3fdd2": "BSD-3-Clause",                          // go-difflib: its contributors' names
	"ce9c578c2968e316b80b180c3f5a5d70a8f32f37256c1bcf944a5de4f9f4eb59": "",                                      // the address of a picture that isn't shipped
	"d426d9220d23d163453059ef4d79a327f3253e9ae76c7ea87036a4fe57c1d783": "Apache-2.0 AND MIT",                    // go-sdk of MCP
	"dd1d351fd37cb075b4248026aa51b9bec783e2d72c88359f4e982af8f773fd8f": "BSD-2-Clause",                          // xxh3: with a name
	"de2e7c240a45e22cd9f3e4e627cee0f64e23425dee2ab3adb89862f208deb83a": "BSD-3-Clause AND MIT AND BSD-2-Clause", // C libraries in modernc.org/libc
}
