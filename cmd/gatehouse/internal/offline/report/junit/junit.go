// Package junit writes test results in the XML of Ant's JUnit task, as systems for continuous integration read it.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

// Suite is a group of cases.
type Suite struct {
	Name string
	// File is the file of its cases, and may be empty.
	File  string
	Cases []Case
}

// Case is one result.
type Case struct {
	Name string
	// Class groups cases, and is most often the name of the suite.
	Class   string
	Elapsed time.Duration
	// Failure and Error are why the case failed or could not be decided, on one line. Both are empty for one that passed.
	Failure, Error string
	// Text has details of a failure or an error, and Output is shown for any case.
	Text, Output string
}

type xmlSuites struct {
	XMLName  xml.Name   `xml:"testsuites"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Time     string     `xml:"time,attr"`
	Suites   []xmlSuite `xml:"testsuite"`
}

type xmlSuite struct {
	Name     string    `xml:"name,attr"`
	File     string    `xml:"file,attr,omitempty"`
	Tests    int       `xml:"tests,attr"`
	Failures int       `xml:"failures,attr"`
	Errors   int       `xml:"errors,attr"`
	Time     string    `xml:"time,attr"`
	Cases    []xmlCase `xml:"testcase"`
}

type xmlCase struct {
	Name    string      `xml:"name,attr"`
	Class   string      `xml:"classname,attr"`
	Time    string      `xml:"time,attr"`
	Failure *xmlProblem `xml:"failure"`
	Error   *xmlProblem `xml:"error"`
	Output  string      `xml:"system-out,omitempty"`
}

type xmlProblem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// Write writes the suites as one document. Characters that XML does not have
// become U+FFFD. The error is that of out.
func Write(out io.Writer, suites []Suite) error {
	var all xmlSuites
	var total time.Duration
	for i := range suites {
		s := &suites[i]
		suite := xmlSuite{Name: s.Name, File: s.File, Tests: len(s.Cases)}
		var elapsed time.Duration
		for j := range s.Cases {
			c := &s.Cases[j]
			one := xmlCase{Name: c.Name, Class: c.Class, Time: seconds(c.Elapsed), Output: c.Output}
			if c.Failure != "" {
				suite.Failures++
				one.Failure = &xmlProblem{Message: c.Failure, Text: c.Text}
			}
			if c.Error != "" {
				suite.Errors++
				one.Error = &xmlProblem{Message: c.Error, Text: c.Text}
			}
			elapsed += c.Elapsed
			suite.Cases = append(suite.Cases, one)
		}
		suite.Time = seconds(elapsed)
		total += elapsed
		all.Tests, all.Failures, all.Errors = all.Tests+suite.Tests, all.Failures+suite.Failures, all.Errors+suite.Errors
		all.Suites = append(all.Suites, suite)
	}
	all.Time = seconds(total)
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
