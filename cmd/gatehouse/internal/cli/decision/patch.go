package decision

import (
	"fmt"

	evanphx "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"
)

// Patched returns an object with a patch, as YAML.
func Patched(object []byte, patch string) ([]byte, error) {
	if patch != "" {
		decoded, err := evanphx.DecodePatch([]byte(patch))
		if err != nil {
			return nil, fmt.Errorf("a patch cannot be read: %w", err)
		}
		if object, err = decoded.Apply(object); err != nil {
			return nil, fmt.Errorf("a patch does not apply: %w", err)
		}
	}
	return yaml.JSONToYAML(object)
}
