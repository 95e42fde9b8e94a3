// Package vedettev1 is the appliance's API: messages, services, their JSON gateway and the OpenAPI document.
package vedettev1

import _ "embed" // the document is served

//go:embed openapi.swagger.json
var openapi []byte

// OpenAPI returns the OpenAPI (Swagger 2.0) document of the JSON API. It must not be changed.
func OpenAPI() []byte { return openapi }
