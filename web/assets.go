package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io/fs"
	"mime"
	"path"
	"strings"
)

// dist is what `make web` makes of src: committed, so that a build needs no node.
//
//go:embed dist
var dist embed.FS

type asset struct {
	contentType    string
	plain, gzipped []byte
}

// loadAssets reads the built files, gives each a name with its hash in it, and writes those names into the page.
func loadAssets(files fs.FS) (map[string]asset, []byte, error) {
	index, err := fs.ReadFile(files, "dist/index.html")
	if err != nil {
		return nil, nil, fmt.Errorf("read the dashboard's page: %w (run make web)", err)
	}
	entries, err := fs.ReadDir(files, "dist")
	if err != nil {
		return nil, nil, fmt.Errorf("list the dashboard's assets: %w", err)
	}
	assets := map[string]asset{}
	page := string(index)
	for _, e := range entries {
		if e.Name() == "index.html" {
			continue
		}
		content, err := fs.ReadFile(files, "dist/"+e.Name())
		if err != nil {
			return nil, nil, fmt.Errorf("read asset %s: %w", e.Name(), err)
		}
		name := hashed(e.Name(), content)
		a := asset{contentType: mime.TypeByExtension(path.Ext(name)), plain: content}
		if a.contentType == "" {
			a.contentType = "application/octet-stream"
		}
		if z, err := squeeze(content); err == nil && len(z) < len(content) {
			a.gzipped = z
		}
		assets[name] = a
		page = strings.ReplaceAll(page, `"/assets/`+e.Name()+`"`, `"/assets/`+name+`"`)
	}
	return assets, []byte(page), nil
}

func squeeze(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
