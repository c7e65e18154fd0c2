package release

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// types maps extensions to media types (IANA registry). It doesn't use the system's mime.types, so that a release is
// the same on every system.
var types = map[string]string{
	"html":        "text/html; charset=utf-8",
	"htm":         "text/html; charset=utf-8",
	"xhtml":       "application/xhtml+xml; charset=utf-8",
	"css":         "text/css; charset=utf-8",
	"js":          "text/javascript; charset=utf-8",
	"mjs":         "text/javascript; charset=utf-8",
	"cjs":         "text/javascript; charset=utf-8",
	"json":        "application/json; charset=utf-8",
	"map":         "application/json; charset=utf-8",
	"jsonld":      "application/ld+json; charset=utf-8",
	"geojson":     "application/geo+json; charset=utf-8",
	"webmanifest": "application/manifest+json; charset=utf-8",
	"txt":         "text/plain; charset=utf-8",
	"text":        "text/plain; charset=utf-8",
	"log":         "text/plain; charset=utf-8",
	"md":          "text/markdown; charset=utf-8",
	"csv":         "text/csv; charset=utf-8",
	"tsv":         "text/tab-separated-values; charset=utf-8",
	"xml":         "application/xml; charset=utf-8",
	"rss":         "application/rss+xml; charset=utf-8",
	"atom":        "application/atom+xml; charset=utf-8",
	"xsl":         "application/xslt+xml; charset=utf-8",
	"yaml":        "application/yaml; charset=utf-8",
	"yml":         "application/yaml; charset=utf-8",
	"toml":        "application/toml; charset=utf-8",
	"vtt":         "text/vtt; charset=utf-8",
	"srt":         "application/x-subrip; charset=utf-8",
	"ics":         "text/calendar; charset=utf-8",
	"vcf":         "text/vcard; charset=utf-8",
	"m3u8":        "application/vnd.apple.mpegurl",
	"mpd":         "application/dash+xml",
	"wasm":        "application/wasm",
	"pdf":         "application/pdf",
	"rtf":         "application/rtf",
	"svg":         "image/svg+xml; charset=utf-8",
	"png":         "image/png",
	"apng":        "image/apng",
	"jpg":         "image/jpeg",
	"jpeg":        "image/jpeg",
	"gif":         "image/gif",
	"webp":        "image/webp",
	"avif":        "image/avif",
	"jxl":         "image/jxl",
	"heic":        "image/heic",
	"ico":         "image/x-icon",
	"bmp":         "image/bmp",
	"tif":         "image/tiff",
	"tiff":        "image/tiff",
	"woff":        "font/woff",
	"woff2":       "font/woff2",
	"ttf":         "font/ttf",
	"otf":         "font/otf",
	"eot":         "application/vnd.ms-fontobject",
	"mp4":         "video/mp4",
	"m4v":         "video/mp4",
	"webm":        "video/webm",
	"ogv":         "video/ogg",
	"mov":         "video/quicktime",
	"ts":          "video/mp2t",
	"mp3":         "audio/mpeg",
	"m4a":         "audio/mp4",
	"aac":         "audio/aac",
	"ogg":         "audio/ogg",
	"oga":         "audio/ogg",
	"opus":        "audio/ogg",
	"wav":         "audio/wav",
	"flac":        "audio/flac",
	"weba":        "audio/webm",
	"mid":         "audio/midi",
	"zip":         "application/zip",
	"gz":          "application/gzip",
	"tgz":         "application/gzip",
	"br":          "application/octet-stream",
	"bz2":         "application/x-bzip2",
	"xz":          "application/x-xz",
	"zst":         "application/zstd",
	"7z":          "application/x-7z-compressed",
	"tar":         "application/x-tar",
	"jar":         "application/java-archive",
	"epub":        "application/epub+zip",
	"glb":         "model/gltf-binary",
	"gltf":        "model/gltf+json; charset=utf-8",
	"obj":         "model/obj",
	"stl":         "model/stl",
	"doc":         "application/msword",
	"xls":         "application/vnd.ms-excel",
	"ppt":         "application/vnd.ms-powerpoint",
	"docx":        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	"xlsx":        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	"pptx":        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	"odt":         "application/vnd.oasis.opendocument.text",
	"ods":         "application/vnd.oasis.opendocument.spreadsheet",
	"odp":         "application/vnd.oasis.opendocument.presentation",
	"odg":         "application/vnd.oasis.opendocument.graphics",
	"kml":         "application/vnd.google-earth.kml+xml; charset=utf-8",
	"kmz":         "application/vnd.google-earth.kmz",
	"gpx":         "application/gpx+xml; charset=utf-8",
	"topojson":    "application/json; charset=utf-8",
	"avi":         "video/x-msvideo",
	"mkv":         "video/x-matroska",
	"mka":         "audio/x-matroska",
	"mpeg":        "video/mpeg",
	"mpg":         "video/mpeg",
	"mpe":         "video/mpeg",
	"3gp":         "video/3gpp",
	"3g2":         "video/3gpp2",
	"wmv":         "video/x-ms-wmv",
	"flv":         "video/x-flv",
	"m2ts":        "video/mp2t",
	"m4s":         "video/iso.segment",
	"rar":         "application/vnd.rar",
	"lz":          "application/x-lzip",
	"lzma":        "application/x-lzma",
	"cab":         "application/vnd.ms-cab-compressed",
	"iso":         "application/x-iso9660-image",
	"ps":          "application/postscript",
	"eps":         "application/postscript",
	"ai":          "application/postscript",
	"psd":         "image/vnd.adobe.photoshop",
	"xslt":        "application/xslt+xml; charset=utf-8",
	"xsd":         "application/xml; charset=utf-8",
	"dtd":         "application/xml-dtd; charset=utf-8",
	"wsdl":        "application/wsdl+xml; charset=utf-8",
	"rdf":         "application/rdf+xml; charset=utf-8",
	"opml":        "text/x-opml; charset=utf-8",
	"ttl":         "text/turtle; charset=utf-8",
	"n3":          "text/n3; charset=utf-8",
	"nt":          "application/n-triples",
	"torrent":     "application/x-bittorrent",
	"tex":         "application/x-tex",
	"latex":       "application/x-latex",
	"bib":         "application/x-bibtex; charset=utf-8",
	"djvu":        "image/vnd.djvu",
	"mobi":        "application/x-mobipocket-ebook",
	"azw3":        "application/vnd.amazon.mobi8-ebook",
	"cbz":         "application/vnd.comicbook+zip",
	"json5":       "application/json5; charset=utf-8",
	"ndjson":      "application/x-ndjson; charset=utf-8",
	"jsonl":       "application/jsonl; charset=utf-8",
	"parquet":     "application/vnd.apache.parquet",
	"sqlite":      "application/vnd.sqlite3",
	"graphql":     "application/graphql; charset=utf-8",
	"heif":        "image/heif",
	"hif":         "image/heif",
	"jfif":        "image/jpeg",
	"jp2":         "image/jp2",
	"jxr":         "image/jxr",
	"cur":         "image/x-icon",
	"svgz":        octets,
	"ktx":         "image/ktx",
	"ktx2":        "image/ktx2",
	"tga":         "image/x-tga",
	"hdr":         "image/vnd.radiance",
	"exr":         "image/x-exr",
	"dds":         "image/vnd.ms-dds",
	"aif":         "audio/aiff",
	"aiff":        "audio/aiff",
	"midi":        "audio/midi",
	"wma":         "audio/x-ms-wma",
	"amr":         "audio/amr",
	"caf":         "audio/x-caf",
	"m3u":         "audio/x-mpegurl",
	"ttc":         "font/collection",
	"pfb":         octets,
	"fbx":         octets,
	"usdz":        "model/vnd.usdz+zip",
	"3mf":         "model/3mf",
	"ply":         octets,
	"mtl":         "model/mtl",
	"docm":        "application/vnd.ms-word.document.macroenabled.12",
	"xlsm":        "application/vnd.ms-excel.sheet.macroenabled.12",
	"vsd":         "application/vnd.visio",
	"dotx":        "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
	"xltx":        "application/vnd.openxmlformats-officedocument.spreadsheetml.template",
	"ppsx":        "application/vnd.openxmlformats-officedocument.presentationml.slideshow",
	"msg":         "application/vnd.ms-outlook",
	"eml":         "message/rfc822",
	"pem":         "application/x-pem-file",
	"crt":         "application/x-x509-ca-cert",
	"cer":         "application/pkix-cert",
	"asc":         "application/pgp-signature",
	"sig":         "application/pgp-signature",
	"msi":         "application/x-msdownload",
	"pkg":         octets,
	"rpm":         "application/x-rpm",
	"appimage":    octets,
	"ipa":         octets,
	"aab":         octets,
	"img":         octets,
	"crx":         "application/x-chrome-extension",
	"xpi":         "application/x-xpinstall",
	"swf":         "application/x-shockwave-flash",
	"class":       "application/java-vm",
	"war":         "application/java-archive",
	"jnlp":        "application/x-java-jnlp-file",
	"appcache":    "text/cache-manifest; charset=utf-8",
	"gv":          "text/vnd.graphviz; charset=utf-8",
	"sh":          "application/x-sh",
	"sql":         "application/sql; charset=utf-8",
	"pbf":         "application/x-protobuf",
	"mvt":         "application/vnd.mapbox-vector-tile",
	"onnx":        octets,
	"safetensors": octets,
	"data":        octets,
	"dat":         octets,
	"pmtiles":     "application/vnd.pmtiles",
	"bin":         octets,
	"exe":         octets,
	"dmg":         octets,
	"deb":         octets,
	"apk":         "application/vnd.android.package-archive",
}

const (
	octets = "application/octet-stream"
	plain  = "text/plain; charset=utf-8"
)

// MediaType returns the media type for a path's extension, or "" if the content must decide.
func MediaType(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if path == ".well-known/apple-app-site-association" || path == "apple-app-site-association" {
		return types["json"] // iOS accepts nothing else
	}
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		if t, ok := types[strings.ToLower(name[dot+1:])]; ok {
			return t
		}
	}
	return ""
}

// sniff tells text from binary data by its first bytes. It never returns HTML: a file without an HTML extension must
// not become a page.
func sniff(head []byte) string {
	if len(head) > 512 {
		head = head[:512]
		for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head); i++ {
			head = head[:len(head)-1] // the end may have split a character
		}
	}
	if !utf8.Valid(head) || bytes.ContainsFunc(head, func(c rune) bool {
		return c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != 0x1b
	}) {
		return octets
	}
	return plain
}

// textual reports whether files of this type usually compress well.
func textual(t string) bool {
	t, _, _ = strings.Cut(t, ";")
	switch t {
	case "application/wasm", "application/vnd.ms-fontobject", "font/ttf", "font/otf", "image/x-icon", "image/bmp",
		"application/vnd.apple.mpegurl", "application/dash+xml", "model/obj", "application/rtf",
		"application/json", "application/postscript", "application/x-ndjson", "application/jsonl", "application/json5", "application/xml-dtd",
		"application/n-triples", "application/x-tex", "application/x-latex", "application/sql", "application/graphql", "application/x-sh",
		"message/rfc822", "application/xml", "application/yaml", "application/toml", "application/x-subrip":
		return true
	}
	return strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+xml") || strings.HasSuffix(t, "+json")
}
