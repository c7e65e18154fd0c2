package release

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// types maps an extension to its media type (IANA registry). It stands here, and not in
// the operating system's mime.types, so that a release is the same wherever it is made.
var types = map[string]string{
	"html": "text/html; charset=utf-8", "htm": "text/html; charset=utf-8", "xhtml": "application/xhtml+xml; charset=utf-8",
	"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "mjs": "text/javascript; charset=utf-8",
	"cjs": "text/javascript; charset=utf-8", "json": "application/json; charset=utf-8", "map": "application/json; charset=utf-8",
	"jsonld": "application/ld+json; charset=utf-8", "geojson": "application/geo+json; charset=utf-8",
	"webmanifest": "application/manifest+json; charset=utf-8", "txt": "text/plain; charset=utf-8",
	"text": "text/plain; charset=utf-8", "log": "text/plain; charset=utf-8", "md": "text/markdown; charset=utf-8",
	"csv": "text/csv; charset=utf-8", "tsv": "text/tab-separated-values; charset=utf-8",
	"xml": "application/xml; charset=utf-8", "rss": "application/rss+xml; charset=utf-8",
	"atom": "application/atom+xml; charset=utf-8", "xsl": "application/xslt+xml; charset=utf-8",
	"yaml": "application/yaml; charset=utf-8", "yml": "application/yaml; charset=utf-8", "toml": "application/toml; charset=utf-8",
	"vtt": "text/vtt; charset=utf-8", "srt": "application/x-subrip; charset=utf-8", "ics": "text/calendar; charset=utf-8",
	"vcf": "text/vcard; charset=utf-8", "m3u8": "application/vnd.apple.mpegurl", "mpd": "application/dash+xml",
	"wasm": "application/wasm", "pdf": "application/pdf", "rtf": "application/rtf",
	"svg": "image/svg+xml; charset=utf-8", "png": "image/png", "apng": "image/apng", "jpg": "image/jpeg", "jpeg": "image/jpeg",
	"gif": "image/gif", "webp": "image/webp", "avif": "image/avif", "jxl": "image/jxl", "heic": "image/heic",
	"ico": "image/x-icon", "bmp": "image/bmp", "tif": "image/tiff", "tiff": "image/tiff",
	"woff": "font/woff", "woff2": "font/woff2", "ttf": "font/ttf", "otf": "font/otf", "eot": "application/vnd.ms-fontobject",
	"mp4": "video/mp4", "m4v": "video/mp4", "webm": "video/webm", "ogv": "video/ogg", "mov": "video/quicktime", "ts": "video/mp2t",
	"mp3": "audio/mpeg", "m4a": "audio/mp4", "aac": "audio/aac", "ogg": "audio/ogg", "oga": "audio/ogg", "opus": "audio/ogg",
	"wav": "audio/wav", "flac": "audio/flac", "weba": "audio/webm", "mid": "audio/midi",
	"zip": "application/zip", "gz": "application/gzip", "tgz": "application/gzip", "br": "application/octet-stream",
	"bz2": "application/x-bzip2", "xz": "application/x-xz", "zst": "application/zstd", "7z": "application/x-7z-compressed",
	"tar": "application/x-tar", "jar": "application/java-archive", "epub": "application/epub+zip",
	"glb": "model/gltf-binary", "gltf": "model/gltf+json; charset=utf-8", "obj": "model/obj", "stl": "model/stl",
	"doc": "application/msword", "xls": "application/vnd.ms-excel", "ppt": "application/vnd.ms-powerpoint",
	"docx":    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	"xlsx":    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	"pptx":    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	"pmtiles": "application/vnd.pmtiles", "bin": octets, "exe": octets, "dmg": octets, "deb": octets, "apk": "application/vnd.android.package-archive",
}

const (
	octets = "application/octet-stream"
	plain  = "text/plain; charset=utf-8"
)

// mediaType returns the type that a path's name gives, or "" when only the content can tell.
func mediaType(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if path == ".well-known/apple-app-site-association" || path == "apple-app-site-association" {
		return types["json"] // iOS takes nothing else
	}
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		if t, ok := types[strings.ToLower(name[dot+1:])]; ok {
			return t
		}
	}
	return ""
}

// sniff tells text from other bytes by their beginning, and never sees HTML in them: a
// name that doesn't say so must not make a page.
func sniff(head []byte) string {
	if len(head) > 512 {
		head = head[:512]
		for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head); i++ {
			head = head[:len(head)-1] // the cut may have split a character
		}
	}
	if !utf8.Valid(head) || bytes.ContainsFunc(head, func(c rune) bool {
		return c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != 0x1b
	}) {
		return octets
	}
	return plain
}

// textual reports whether compressing a type is likely to pay.
func textual(t string) bool {
	t, _, _ = strings.Cut(t, ";")
	switch t {
	case "application/wasm", "application/vnd.ms-fontobject", "font/ttf", "font/otf", "image/x-icon", "image/bmp",
		"application/vnd.apple.mpegurl", "application/dash+xml", "model/obj", "application/rtf",
		"application/json", "application/xml", "application/yaml", "application/toml", "application/x-subrip":
		return true
	}
	return strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+xml") || strings.HasSuffix(t, "+json")
}
