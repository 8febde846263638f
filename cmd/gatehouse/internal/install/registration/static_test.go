package registration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	webhookconfig "k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/manifest/loader"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// loadStatic loads the files of a directory with the loader of kube-apiserver, as a plugin does that accepts one kind.
func loadStatic[T metav1.Object](t *testing.T, documents []Document, render func([]Document) ([]byte, error), name string) ([]T, error) {
	t.Helper()
	text, err := render(documents)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scheme.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	configs, _, err := loader.LoadManifests(dir, decoder, func(object runtime.Object) ([]T, error) {
		config, ok := object.(T)
		if !ok {
			return nil, fmt.Errorf("unsupported resource type %T", object)
		}
		return []T{config}, nil
	})
	return configs, err
}

// The files load with the API server's own loader, each in the directory of its plugin, and have the webhooks that
// 'kubectl apply' would register.
func TestStaticFilesLoad(t *testing.T) {
	static := func(o *Options) { o.Static = true }
	objects, err := ForAdmission(options(withURL))
	if err != nil {
		t.Fatal(err)
	}
	files, err := ForAdmission(options(withURL, static))
	if err != nil {
		t.Fatal(err)
	}
	for name, render := range map[string]func([]Document) ([]byte, error){
		"gatehouse.yaml": func(d []Document) ([]byte, error) { return YAML("", d) }, "gatehouse.json": JSON,
	} {
		mutating, err := loadStatic[*admissionregistrationv1.MutatingWebhookConfiguration](t, OnlyStatic(files.Documents, StaticMutating), render, name)
		if err != nil || len(mutating) != 1 || mutating[0].Name != "gatehouse.static.k8s.io" {
			t.Fatalf("%s: got %v, %v", name, mutating, err)
		}
		validating, err := loadStatic[*admissionregistrationv1.ValidatingWebhookConfiguration](t, OnlyStatic(files.Documents, StaticValidating), render, name)
		if err != nil || len(validating) != 1 || validating[0].Name != "gatehouse.static.k8s.io" {
			t.Fatalf("%s: got %v, %v", name, validating, err)
		}
		for i, got := range []any{mutating[0].Webhooks, validating[0].Webhooks} {
			var want any = OnlyStatic(objects.Documents, StaticMutating)[0].object.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks
			if i == 1 {
				want = OnlyStatic(objects.Documents, StaticValidating)[0].object.(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
			}
			if g, w := asJSON(t, got), asJSON(t, want); !bytes.Equal(g, w) {
				t.Errorf("%s: webhooks differ from those of objects:\n%s\nwant\n%s", name, g, w)
			}
		}
		_, err = loadStatic[*admissionregistrationv1.ValidatingWebhookConfiguration](t, files.Documents, render, name)
		if err == nil {
			t.Errorf("%s: both kinds load from one directory now: print one file", name)
		}
	}
}

// The AdmissionConfiguration names a directory for each kind that there is, and the API server accepts what is in it.
func TestStaticConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		plugins []string
	}{
		"both kinds":       {options(withURL), []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}},
		"without policies": {options(withURL, func(o *Options) { o.Spec = &webhooks.Spec{Sidecar: spec().Sidecar} }), []string{"MutatingAdmissionWebhook"}},
		"without profiles": {options(withURL, func(o *Options) { o.Spec = &webhooks.Spec{Policy: spec().Policy} }), []string{"ValidatingAdmissionWebhook"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Static = true
			a, err := ForAdmission(c.options)
			if err != nil {
				t.Fatal(err)
			}
			text, err := YAML("", []Document{StaticConfiguration(c.options, a.Documents)})
			if err != nil {
				t.Fatal(err)
			}
			var configuration struct {
				Plugins []struct {
					Name          string          `json:"name"`
					Configuration json.RawMessage `json:"configuration"`
				} `json:"plugins"`
			}
			if err := yaml.Unmarshal(text, &configuration); err != nil {
				t.Fatal(err)
			}
			var plugins []string
			dir := t.TempDir()
			for _, p := range configuration.Plugins {
				plugins = append(plugins, p.Name)
				for _, kind := range []string{"mutating", "validating"} {
					p.Configuration = bytes.ReplaceAll(p.Configuration, []byte("/etc/kubernetes/gatehouse/"+kind), []byte(dir))
				}
				loaded, err := webhookconfig.LoadConfig(bytes.NewReader(p.Configuration))
				if err != nil || loaded.StaticManifestsDir != dir {
					t.Errorf("%s: got %+v, %v", p.Name, loaded, err)
				}
			}
			if strings.Join(plugins, " ") != strings.Join(c.plugins, " ") {
				t.Errorf("plugins %v, want %v", plugins, c.plugins)
			}
		})
	}
}

// Files have webhook configurations alone, and only those that work without the cluster.
func TestStaticOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"a Service": options(func(o *Options) { o.Static, o.CABundle = true, options(withURL).CABundle }),
		"no CA":     options(withURL, func(o *Options) { o.Static, o.CABundle, o.SelfSigned = true, nil, true }),
	} {
		if _, err := ForAdmission(o); err == nil || !strings.Contains(err.Error(), "need a URL and a CA bundle") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	a, err := ForAdmission(options(withURL, func(o *Options) {
		o.Static, o.CustomResources = true, true
		o.Server.URL = "https://gatehouse.gatehouse-system.svc"
	}))
	if err != nil {
		t.Fatal(err)
	}
	if rights := Only(a.Documents, PartRights, PartGuard, PartCertificates); len(a.Documents) != 2 || len(rights) != 0 || a.Serve != "" {
		t.Errorf("got %d documents, %d of them rights, guard and certificates, and the command line %q", len(a.Documents), len(rights), a.Serve)
	}
	notes := strings.Join(a.Notes, "\n")
	for _, want := range []string{"looks like the name of a Service", "--part rights"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in:\n%s", want, notes)
		}
	}
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
