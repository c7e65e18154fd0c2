package edge

import "strings"

// fingerprinted reports whether a file's name changes with its content, so that it may
// be kept for ever. A wrong no costs a revalidation; a wrong yes shows a visitor an old
// file for a year, so names that only look a little like it (2024, iphone15pro) do not
// count. Pages never do.
//
// A fingerprint is a part of the name, between dots, dashes and underscores: 8 or more
// hex digits, letters and figures both (webpack, Parcel); or, for the files that
// bundlers write, 8 or more characters of capitals, small letters and figures (Vite,
// Rollup), or 8 of capitals and figures (esbuild).
func fingerprinted(path, kind string) bool {
	if strings.HasPrefix(kind, "text/html") {
		return false
	}
	for _, dir := range []string{"_next/static/", "_app/immutable/"} {
		if strings.HasPrefix(path, dir) || strings.Contains(path, "/"+dir) {
			return true
		}
	}
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return false
	}
	bundled := bundle(dir, name[dot+1:])
	stem := strings.TrimSuffix(strings.TrimSuffix(name[:dot], ".min"), ".js") // app.ab12cd34.js.map
	// Rollup's fingerprints may hold dashes and underscores themselves: the last 8
	// characters count, too.
	if bundled && len(stem) > 9 && stem[len(stem)-9] == '-' && mixed(stem[len(stem)-8:]) {
		return true
	}
	for part := range strings.FieldsFuncSeq(stem, func(c rune) bool { return c == '.' || c == '-' || c == '_' }) {
		if len(part) >= 8 && (hexadecimal(part) || bundled && mixed(part)) {
			return true
		}
	}
	return false
}

// bundle reports whether a file is of a kind, or in a directory, that bundlers write.
func bundle(dir, ext string) bool {
	switch strings.ToLower(ext) {
	case "js", "mjs", "css", "map", "wasm", "woff", "woff2":
		return true
	}
	switch dir[strings.LastIndexByte(dir, '/')+1:] {
	case "_astro", "_nuxt", "chunks":
		return true
	}
	return false
}

func hexadecimal(s string) bool {
	var letters, figures int
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			figures++
		case c >= 'a' && c <= 'f':
			letters++
		default:
			return false
		}
	}
	return letters > 0 && figures > 0
}

// mixed reports whether a part looks drawn at random from letters and figures: a figure
// that is not just the number at the end of a word.
func mixed(s string) bool {
	var upper, lower, figures int
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			figures++
		case c >= 'a' && c <= 'z':
			lower++
		case c >= 'A' && c <= 'Z':
			upper++
		case c != '-' && c != '_':
			return false
		}
	}
	if figures == 0 || upper == 0 || strings.Trim(strings.TrimRight(s, "0123456789"), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return false
	}
	return lower > 0 || len(s) == 8
}
