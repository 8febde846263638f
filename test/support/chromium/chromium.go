// Package chromium opens pages in a real browser without a window.
//
// A browser is a process of its own that is driven by the DevTools protocol over a pipe: it ends with the test that started
// it, and with this process however that ends.
package chromium

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// Page is a page of a browser. Its methods are for one goroutine.
type Page struct {
	t       testing.TB
	to      *os.File
	session string
	ids     int

	mu       sync.Mutex
	answers  map[int]json.RawMessage
	errors   map[int]string
	loaded   int
	requests []string
	messages []string
	closed   error
}

// Options say how a page is shown.
type Options struct {
	// Width and Height are in CSS pixels.
	Width, Height int
	// Dark asks pages for dark colors.
	Dark bool
}

// Open opens a file in a new browser and waits until it is loaded. The browser is one that 'make chromium' gets.
func Open(t testing.TB, file string, o Options) *Page {
	t.Helper()
	program, err := support.Built("chromium", "chromium", "run")
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, answers: map[int]json.RawMessage{}, errors: map[int]string{}}
	if err := p.start(program); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	var target struct {
		TargetID  string `json:"targetId"`
		SessionID string `json:"sessionId"`
	}
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	p.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	p.session = target.SessionID
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		p.call(domain+".enable", map[string]any{}, nil)
	}
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": o.Width, "height": o.Height, "deviceScaleFactor": 1, "mobile": true}, nil)
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	p.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	support.Eventually(t, "load "+file, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.loaded == 0 {
			return errors.Join(errors.New("it is not loaded"), p.closed)
		}
		return nil
	})
	return p
}

// start starts a browser.
func (p *Page) start(program string) error {
	fromBrowser, browserOut, err := os.Pipe()
	if err != nil {
		return err
	}
	browserIn, toBrowser, err := os.Pipe()
	if err != nil {
		return err
	}
	//nolint:gosec,noctx // a program of our own, which ends with the pipe
	command := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+p.t.TempDir(), "--remote-debugging-pipe")
	command.ExtraFiles = []*os.File{browserIn, browserOut} // 3 and 4
	if err := command.Start(); err != nil {
		return err
	}
	p.to = toBrowser
	var reading sync.WaitGroup
	reading.Go(func() { p.read(fromBrowser) })
	p.t.Cleanup(func() {
		_ = toBrowser.Close() // which ends the browser
		const patience = 10 * time.Second
		kill := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
		_ = command.Wait() // however it ends
		kill.Stop()
		_ = fromBrowser.Close()
		reading.Wait()
	})
	return errors.Join(browserIn.Close(), browserOut.Close())
}

// message is a message of the DevTools protocol, which ends with a zero byte.
type message struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Method string `json:"method"`
	Params struct {
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Entry struct {
			Text string `json:"text"`
		} `json:"entry"`
	} `json:"params"`
}

// read reads what the browser says until it ends.
func (p *Page) read(from *os.File) {
	reader := bufio.NewReader(from)
	for {
		text, err := reader.ReadBytes(0)
		if err != nil {
			p.mu.Lock()
			p.closed = fmt.Errorf("chromium has ended: %w", err)
			p.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue // an event of another form
		}
		p.mu.Lock()
		switch {
		case m.ID > 0 && m.Error != nil:
			p.errors[m.ID] = m.Error.Message
		case m.ID > 0:
			p.answers[m.ID] = m.Result
		case m.Method == "Page.loadEventFired":
			p.loaded++
		case m.Method == "Network.requestWillBeSent":
			p.requests = append(p.requests, m.Params.Request.URL)
		case m.Method == "Log.entryAdded":
			p.messages = append(p.messages, m.Params.Entry.Text)
		}
		p.mu.Unlock()
	}
}

// call calls a method of the protocol.
func (p *Page) call(method string, params, into any) {
	p.t.Helper()
	p.ids++
	id := p.ids
	call := map[string]any{"id": id, "method": method, "params": params}
	if p.session != "" {
		call["sessionId"] = p.session
	}
	text, err := json.Marshal(call)
	if err == nil {
		_, err = p.to.Write(append(text, 0))
	}
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	support.Eventually(p.t, method, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.answers[id] == nil && p.errors[id] == "" {
			return errors.Join(errors.New("no answer"), p.closed)
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed := p.errors[id]; failed != "" {
		p.t.Fatalf("%s: %s", method, failed)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(p.answers[id], into); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

// Evaluate evaluates a JavaScript expression in the page, and decodes its value.
func (p *Page) Evaluate(expression string, into any) {
	p.t.Helper()
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &out)
	if out.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	if err := json.Unmarshal(out.Result.Value, into); err != nil {
		p.t.Fatalf("%s: %v: %q", expression, err, out.Result.Value)
	}
}

// Requests returns the URLs of all requests but those of files.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.requests), func(url string) bool { return strings.HasPrefix(url, "file://") })
}

// Messages returns what the browser has written to its console, such as violations of a content security policy.
func (p *Page) Messages() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.messages)
}

// Screenshot returns a picture of the page as PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	var out struct {
		Data []byte `json:"data"`
	}
	p.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &out)
	return out.Data
}
