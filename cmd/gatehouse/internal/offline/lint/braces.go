package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// braces matches what Helm, Istio's injector or a habit from them replaces: {{ .Values.x }}, {{ params.x }}. Other programs, which may
// read such a text in a sidecar, have other names.
var braces = regexp.MustCompile(`\{\{-?\s*(?:[a-zA-Z]+\s+)*(\.?(?:Values|Release|Chart|ObjectMeta|Spec|ProxyConfig|params|pod|namespace|presets)\.[^\s}]*)[^}]*\}\}`)

// lintProfile reports strings of templates with {{ }}, which stay as they are.
func (l *linter) lintProfile(d document, spec *v1alpha1.SidecarProfileSpec) {
	l.lintBraces(d, spec.Template, "spec.template")
	for i := range spec.AppContainers {
		l.lintBraces(d, spec.AppContainers[i].Template, strict.Element("spec.appContainers", i)+".template")
	}
}

func (l *linter) lintBraces(d document, template any, path string) {
	text, err := json.Marshal(template)
	if err != nil {
		return // Compile reports it
	}
	var tree any
	if json.Unmarshal(text, &tree) != nil {
		return
	}
	var visit func(value any, path string)
	visit = func(value any, path string) {
		switch value := value.(type) {
		case string:
			if found := braces.FindStringSubmatch(value); found != nil {
				d.addAt(DoubleBraces, path, fmt.Sprintf(`write ${…} around a CEL expression over pod, namespace, params or presets, in place of %s`, quoted(found[0])),
					fmt.Sprintf("%s has {{ }}, which is not replaced: sidecars get it as it is", quoted(value)))
			}
		case []any:
			for i, element := range value {
				visit(element, strict.Element(path, i))
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				visit(value[name], strict.Member(path, name))
			}
		}
	}
	visit(tree, path)
}
