package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// creators is how many requests are under way at a time.
const creators = 16

// pathOf returns the path of a collection.
func pathOf(apiVersion, kind, namespace string) string {
	path := "/apis/" + apiVersion
	if apiVersion == "v1" {
		path = "/api/v1"
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	plural := strings.ToLower(kind) + "s"
	if strings.HasSuffix(plural, "ss") {
		plural = strings.TrimSuffix(plural, "s") + "es"
	}
	return path + "/" + plural
}

// creator creates objects, many at a time.
type creator struct {
	client rest.Interface
	texts  chan []byte
	group  sync.WaitGroup
	mu     sync.Mutex
	err    error
}

// newCreator starts it. Close waits for its end.
func newCreator(t *testing.T, access *rest.Config) *creator {
	t.Helper()
	config := rest.CopyConfig(access)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	c := &creator{client: client.CoreV1().RESTClient(), texts: make(chan []byte, creators)}
	for range creators {
		c.group.Go(func() {
			for text := range c.texts {
				if err := c.create(t, text); err != nil {
					c.mu.Lock()
					c.err = err
					c.mu.Unlock()
				}
			}
		})
	}
	return c
}

func (c *creator) create(t *testing.T, text []byte) error {
	var meta struct {
		APIVersion, Kind string
		Metadata         struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("%w: %.300s", err, text)
	}
	err := c.client.Post().AbsPath(pathOf(meta.APIVersion, meta.Kind, meta.Metadata.Namespace)).
		SetHeader("Content-Type", "application/json").Body(text).Do(t.Context()).Error()
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", meta.Kind, meta.Metadata.Namespace, meta.Metadata.Name, err)
	}
	return nil
}

// add creates an object of JSON.
func (c *creator) add(text []byte) { c.texts <- text }

// addYAML creates the objects of documents.
func (c *creator) addYAML(t *testing.T, documents string) {
	t.Helper()
	for text := range strings.SplitSeq(documents, "---\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		object, err := yaml.YAMLToJSON([]byte(text))
		must(t, err)
		c.add(object)
	}
}

// close waits for the last object.
func (c *creator) close(t *testing.T) {
	t.Helper()
	close(c.texts)
	c.group.Wait()
	must(t, c.err)
}
