package podsecurity_test

import (
	"os"
	"testing"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

// BenchmarkDecode has a usual pod, and the passing by of all of it, which is
// what reading it cannot be cheaper than.
func BenchmarkDecode(b *testing.B) {
	text, err := os.ReadFile("../policy/testdata/pod.json")
	must(b, err)
	value, err := rawjson.Parse(text)
	must(b, err)
	for _, bench := range []struct {
		name string
		does func() error
	}{
		{"decode", func() error {
			_, err := podsecurity.Decode(value)
			return err
		}},
		{"pass by", func() error {
			c := value.Cursor()
			c.Skip()
			return nil
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.does(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
