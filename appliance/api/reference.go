package api

import (
	"cmp"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strings"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// operation is one path and method of the OpenAPI document.
type operation struct {
	Method, Path string
	Summary      string `json:"summary"`
	ID           string `json:"operationId"`
	Tags         []string
	Parameters   []struct {
		Name, In, Description, Type string
		Required                    bool
	}
}

// service is the operations of one service, by path.
type service struct {
	Name       string
	Operations []operation
}

// services reads the OpenAPI document for people.
func services(document []byte) ([]service, error) {
	var doc struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	by := map[string][]operation{}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			o.Method, o.Path = strings.ToUpper(method), path
			name := strings.Join(o.Tags, " ")
			by[name] = append(by[name], o)
		}
	}
	var list []service
	for _, name := range sortedKeys(by) {
		slices.SortFunc(by[name], func(a, b operation) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method)) })
		list = append(list, service{name, by[name]})
	}
	return list, nil
}

const referencePage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Vedette: the API</title>
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif } body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem } h3 { font: 600 .95rem ui-monospace, monospace; margin: 1.6rem 0 .2rem; overflow-wrap: anywhere }
b { display: inline-block; min-width: 4.2rem } table { border-collapse: collapse; width: 100% } td { padding: .15rem .8rem .15rem 0; vertical-align: top }
td:first-child { font-family: ui-monospace, monospace; white-space: nowrap } p { margin: .2rem 0 .4rem }
</style></head><body>
<h1>The API</h1>
<p>JSON over HTTP; send <code>Authorization: Bearer TOKEN</code>. The same services speak gRPC as <code>vedette.v1</code>. For programs: <a href="/openapi.json">openapi.json</a>.</p>
<nav>{{range .}}<a href="#{{.Name}}">{{.Name}}</a> {{end}}</nav>
{{range .}}<h2 id="{{.Name}}">{{.Name}}</h2>
{{range .Operations}}<h3><b>{{.Method}}</b>{{.Path}}</h3><p>{{.Summary}}</p>
{{if .Parameters}}<table>{{range .Parameters}}<tr><td>{{.Name}}{{if .Required}} *{{end}}</td><td>{{.In}}</td><td>{{.Description}}</td></tr>{{end}}</table>{{end}}
{{end}}{{end}}</body></html>
`

// reference is the page of every path of the API, made once.
func reference() (http.Handler, error) {
	list, err := services(vedettev1.OpenAPI())
	if err != nil {
		return nil, err
	}
	var page strings.Builder
	if err := template.Must(template.New("reference").Parse(referencePage)).Execute(&page, list); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(page.String()))
	}), nil
}
