package release

import "strings"

// HashedFolder is a folder of the release whose file names contain a digest of the content, so that browsers may cache
// the files forever.
type HashedFolder struct {
	Folder string // "" is the whole release
	Form   Form
}

// Form is a form of hashed names.
type Form string

// The forms used by bundlers. A file without its folder's form is not immutable, because a project may configure names
// without digests.
const (
	EveryName Form = ""       // all files
	Base64    Form = "base64" // Vite, Rollup: 8 of A-Z a-z 0-9 - _ after a dash or a dot
	Base32    Form = "base32" // esbuild, Angular: 8 of A-Z 2-7 after a dash or a dot
	Hex       Form = "hex"    // webpack, Parcel, Rspack: 8 or more hex digits
	Digest    Form = "digest" // Hugo: 32 or more hex digits
)

// ownedFolders belong to frameworks: they contain nothing else, and the name of each file, or of its folder, changes
// with its content.
var ownedFolders = []string{"_next/static/", "_app/immutable/", "_astro/", "_nuxt/"}

// Hashed sets the folders with hashed files. verbatim reports whether a path was copied from the sources under its own
// name; such a file is never immutable. verbatim may be nil.
func (w *Writer) Hashed(folders []HashedFolder, verbatim func(path string) bool) {
	w.hashed, w.verbatim = folders, verbatim
}

// immutable reports whether a file's content can never change under its path.
func (w *Writer) immutable(f File) bool {
	if strings.HasPrefix(f.Type, "text/html") || w.verbatim != nil && w.verbatim(f.Path) {
		return false
	}
	for _, owned := range ownedFolders {
		rest, ok := strings.CutPrefix(f.Path, owned)
		if !ok {
			_, rest, ok = strings.Cut(f.Path, "/"+owned) // below a base path
		}
		if ok {
			return rest != "builds/latest.json" // Nuxt's list of the newest build
		}
	}
	for _, h := range w.hashed {
		rest, ok := f.Path, true
		if h.Folder != "" {
			rest, ok = strings.CutPrefix(f.Path, h.Folder+"/")
		}
		if ok && h.Form.in(rest[strings.LastIndexByte(rest, '/')+1:], h.Folder == "") {
			return true
		}
	}
	return false
}

// in reports whether a file's name has the form. If strict, because the folder may contain other files, names that
// could be words or dates don't count.
func (form Form) in(name string, strict bool) bool {
	if form == EveryName {
		return true
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return false
	}
	stem := name[:dot]
	if form == Base64 {
		// The digest itself may contain dashes: the 8 characters between a dash or dot and a dot count.
		for i, part := range strings.Split(stem, ".") {
			n := len(part)
			if (n == 8 && i > 0 || n > 8 && part[n-9] == '-') && base64Digest(part[n-8:], strict) {
				return true
			}
		}
		return false
	}
	for part := range strings.FieldsFuncSeq(stem, func(c rune) bool { return c == '.' || c == '-' || c == '_' || c == '~' }) {
		switch {
		case form == Base32 && len(part) == 8 && strings.Trim(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "",
			form == Hex && len(part) >= 8 && hexDigest(part, strict),
			form == Digest && len(part) >= 32 && hexDigest(part, strict):
			return true
		}
	}
	return false
}

func base64Digest(s string, strict bool) bool {
	telling := false // lower-case letters alone may be a word
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z':
			telling = true
		case c >= 'a' && c <= 'z', c == '-', c == '_':
		default:
			return false
		}
	}
	return telling || !strict
}

func hexDigest(s string, strict bool) bool {
	letters, figures := false, false
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			figures = true
		case c >= 'a' && c <= 'f':
			letters = true
		default:
			return false
		}
	}
	return letters && figures || !strict
}
