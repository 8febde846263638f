package install

import (
	"io"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

// printCRDs writes the CustomResourceDefinitions of this version: as a stream of YAML
// documents, or as a List in JSON. The caller has checked the output's name.
func printCRDs(out io.Writer, output string) error {
	if output != "json" {
		text, err := crds.YAML()
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	items := make([]map[string]any, len(definitions))
	for i, definition := range definitions {
		items[i] = definition.Object
	}
	return cli.WriteJSON(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
