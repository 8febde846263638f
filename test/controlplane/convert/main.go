//go:build ignore

// Convert converts objects between versions with the API server's own code, that of the Kubernetes version whose module it
// is built with. It reads one {"object":…,"to":"group/version"} from each line of its input and writes one line for each,
// with the object in that version as the API server would send it to a webhook.
//
// It makes webhooks/kinds/versions/testdata/upstream.jsonl of inputs.jsonl beside it:
//
//	cd test/controlplane/1.37.0 && go run ../convert/main.go <INPUTS >OUTPUTS
//
// To the main module this file does not exist, by the first line: k8s.io/kubernetes is no dependency of that.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
}

func run(input io.Reader, output io.Writer) error {
	lines, answers := bufio.NewScanner(input), json.NewEncoder(output)
	lines.Buffer(nil, 1<<24)
	answers.SetEscapeHTML(false)
	for lines.Scan() {
		var one struct {
			Object json.RawMessage `json:"object"`
			To     string          `json:"to"`
		}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		out, err := convert(one.Object, one.To)
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Bytes(), err)
		}
		if err := answers.Encode(out); err != nil {
			return err
		}
	}
	return lines.Err()
}

// convert converts an object as admission plug-ins get it: by way of the internal version, without defaults.
func convert(text []byte, to string) (runtime.Object, error) {
	gv, err := schema.ParseGroupVersion(to)
	if err != nil {
		return nil, err
	}
	object, kind, err := legacyscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, err
	}
	out, err := legacyscheme.Scheme.New(gv.WithKind(kind.Kind))
	if err != nil {
		return nil, err
	}
	if err := legacyscheme.Scheme.Convert(internal, out, nil); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind.Kind))
	return out, nil
}
