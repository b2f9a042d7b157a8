"""What every key of an application file means: for the JSON Schema of editors and for the reference.

A test compares this list with the model. Keys of options stand under the adapter that takes them.
"""

from __future__ import annotations

from collections.abc import Mapping

_FUNCTIONS = "functions of your own as `module:name`; the module lies beside the application file"
_FILE = "relative to the application file"
_MAPS = "maps; which one is applied is chosen by the type of the message"
_CHARSET = "how text is encoded, as Python names it; UTF-8 unless a byte order mark says otherwise"
_DECODE = "what is done with the bytes first, in order: `gzip`, or " + _FUNCTIONS
_RECEIVE_PIPELINE = "`json`, `xml`, `flat`, `passthrough`, or the name of one under `pipelines`"
_SCHEMA = "a declared schema type, where the application has more than one of the format; for XML also a list"
_SPLIT = "of JSON: `document`, `array` or `lines`, where it is not to be told from the file"
_FAILED = "`suspend`, or `route`: what fails is published with `ErrorReport.*` promoted"
_HOST = "the host that does the work; it is made when it is first named"
_TRACK = "what is tracked here: `off`, `events`, or `bodies` too; otherwise as the application says"
_SECONDS = "in seconds"

# By the name of the model: the name of what it describes, and the keys with their meaning.
KEYS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "ApplicationModel": (
        "the application",
        {
            "application": "its name, which all its artefacts belong to",
            "track": "what is tracked: `off`, `events`, or `bodies` too; for whatever has no `track` of its own",
            "hosts": "hosts with their labels; a host without labels need not be declared",
            "properties": "what messages are routed by: each name with its type, or `{type: ..., personal: true}`",
            "schemas": "the kinds of documents",
            "pipelines": "pipelines of your own",
            "receive_ports": "where messages come from",
            "send_ports": "where messages go to",
            "send_port_groups": "send ports that are given messages together",
            "orchestrations": "durable processes, written as Python coroutines",
        },
    ),
    "PropertyModel": (
        "property",
        {
            "type": "`text`, `integer`, `decimal`, `float`, `boolean` or `datetime`",
            "personal": "`true`: its values are kept apart in the track",
        },
    ),
    "HostModel": (
        "host",
        {"name": "its name", "labels": "a message that carries labels is given only to a host that has them all"},
    ),
    "SchemaModel": (
        "schema",
        {
            "type": "becomes `BTS.MessageType`; for XML it is `namespace#root`, or `root` without a namespace",
            "format": "`json`, `xml` or `flat`",
            "promote": "declared properties, each with the path of its field; they can be routed by",
            "distinguished": "names, each with the path of its field; they are written and cannot be routed by",
            "validate": "an XSD or a JSON Schema that every document has to fit, " + _FILE,
            "namespaces": "of XML: prefixes that the paths use, each with its namespace",
            "body": "of an XML envelope: the path of the element whose children are the messages",
            "columns": "of flat files: names, or names with first position and length; else the first line has them",
            "delimiter": "of flat files: the character between two columns",
            "quote": "of flat files: the character around a column that holds a delimiter",
            "header": "of flat files: how the first line is cut",
            "trailer": "of flat files: how the last line is cut",
        },
    ),
    "RecordModel": (
        "header",
        {
            "columns": "names, or names with first position and length",
            "delimiter": "the character between two columns",
            "quote": "the character around a column that holds a delimiter",
            "promote": "declared properties, each with the name of its column",
            "distinguished": "names, each with the name of its column",
        },
    ),
    "TrailerModel": (
        "trailer",
        {
            "columns": "names, or names with first position and length",
            "delimiter": "the character between two columns",
            "quote": "the character around a column that holds a delimiter",
            "promote": "declared properties, each with the name of its column",
            "distinguished": "names, each with the name of its column",
            "count": "the column that says how many lines came before",
        },
    ),
    "PipelineModel": (
        "pipeline",
        {
            "name": "its name, by which locations use it",
            "decode": _DECODE,
            "charset": _CHARSET,
            "disassemble": "`json`, `xml`, `flat`, `passthrough`, or a function of your own as `module:name`",
            "components": "what is done with every message, in order: " + _FUNCTIONS,
        },
    ),
    "ReceivePortModel": (
        "receive port",
        {
            "name": "its name, which every message carries as `BTS.ReceivePortName`",
            "locations": "at least one",
            "maps": _MAPS,
            "failed_messages": _FAILED,
            "two_way": "`true`: whoever sends is given an answer",
            "response": "of a two-way port: the send pipeline for the answer",
            "response_maps": "of a two-way port: maps for the answer",
        },
    ),
    "LocationModel": (
        "location",
        {
            "name": "its name; without one `<port>.<adapter>`, as in `OrdersIn.file`",
            "adapter": "`file`, `sql`, `http`, or a class of your own as `module:Class`",
            "address": "a folder and a mask; for `sql` an SQLAlchemy URL; for `http` where to listen",
            "options": "what else the adapter takes",
            "pipeline": _RECEIVE_PIPELINE,
            "schema": _SCHEMA,
            "decode": _DECODE,
            "charset": _CHARSET,
            "split": _SPLIT,
            "interchange": "`recoverable`: bad messages of a file are suspended one by one; `standard`: all or nothing",
            "host": _HOST,
            "labels": "labels that every message from here carries",
            "track": _TRACK,
        },
    ),
    "MapModel": (
        "map",
        {
            "from": "the type of the messages that it takes",
            "to": "the declared schema type that it makes",
            "xslt": "an XSLT file, " + _FILE,
            "function": "or a function of your own as `module:name`",
        },
    ),
    "SendPortModel": (
        "send port",
        {
            "name": "its name",
            "filter": "which messages it is given; without one only what is addressed to it",
            "adapter": "`file`, `http`, `sql`, or a class of your own as `module:Class`",
            "address": "a path or a URL with macros such as `%MessageID%`; for `sql` an SQLAlchemy URL",
            "options": "what else the adapter takes; of a dynamic port the options of each adapter by its name",
            "dynamic": "`true`: adapter and address are in the message",
            "allow": "of a dynamic port: the places that a message may name",
            "host": _HOST,
            "priority": "1, the most urgent, to 10",
            "ordered": "`true`: one message at a time, in the order of publishing",
            "stop_on_failure": "`true`: an ordered port waits when a message is suspended",
            "retry": "how often a delivery is tried again, and how long is waited",
            "service_window": "the hours in which it sends; without them always",
            "in_flight": "how many deliveries at once, by all instances of its host together",
            "maps": _MAPS,
            "pipeline": "what is done with a body before it goes out",
            "response": "makes the port two-way: what the partner answers is published",
            "failed_messages": _FAILED,
            "track": _TRACK,
        },
    ),
    "AllowModel": (
        "allowed place",
        {
            "address": "the beginning of a URL, a folder, or a database",
            "options": "options of its adapter for this place, credentials too",
        },
    ),
    "RetryModel": (
        "retry",
        {
            "count": "how often a failed delivery is tried again",
            "interval": "how long is waited, in seconds or as an ISO 8601 duration such as `PT5M`",
        },
    ),
    "WindowModel": (
        "service window",
        {
            "from": 'when it opens, as in `"18:00"`',
            "to": 'when it closes, as in `"06:00"`; over midnight if that is the earlier of the two',
            "timezone": "whose clock counts, as in `Europe/Oslo`",
        },
    ),
    "SendPipelineModel": (
        "send pipeline",
        {
            "assemble": "`json`, `xml`, `flat` or `passthrough`",
            "declaration": "of XML: `true` writes an XML declaration",
            "schema": "of flat files: the schema by whose columns lines are written",
            "components": "what is done with every message, in order: " + _FUNCTIONS,
            "encode": "what is done with the bytes last, in order: `gzip`, or " + _FUNCTIONS,
            "charset": "how text is encoded, as Python names it; UTF-8 otherwise",
        },
    ),
    "ResponseModel": (
        "response",
        {
            "pipeline": _RECEIVE_PIPELINE,
            "schema": _SCHEMA,
            "decode": _DECODE,
            "charset": _CHARSET,
            "split": _SPLIT,
            "maps": _MAPS,
        },
    ),
    "SendPortGroupModel": (
        "send port group",
        {
            "name": "its name; no send port has it",
            "filter": "which messages its ports are given besides their own",
            "ports": "names of static one-way send ports of this application",
        },
    ),
    "OrchestrationModel": (
        "orchestration",
        {
            "name": "its name; without one that of the function",
            "function": "the coroutine, as `module:name`; the module lies beside the application file",
            "bind": "each port of the coroutine with a send port, a group, an orchestration, or `direct`",
            "host": _HOST,
            "maps": "maps by name, for `process.map(name, message)`",
            "track": _TRACK,
        },
    ),
}

# By the name of the options of a transport.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "FileReceiveOptions": {
        "subfolders": "`true`: folders below are searched too",
        "minimum_age": f"how long a file has not been changed before it is read, {_SECONDS}",
        "minimum_size": "smaller files are left alone, in bytes",
        "maximum_size": "larger files are left alone, in bytes",
        "archive": f"a folder that files are moved to once they are published, {_FILE}; without one they are removed",
        "marker": "an ending such as `.done`: `a.json` is read once there is a file `a.json.done`",
    },
    "FileSendOptions": {},
    "HttpReceiveOptions": {
        "methods": "others are refused",
        "maximum_size": "a larger body is refused, in bytes",
        "maximum_messages": "a body with more messages is refused",
        "api_keys": "the header `X-API-Key` must be one of them; may be `env:NAME`",
        "basic": "users with their passwords, of which basic authentication must fit one; may be `env:NAME`",
        "rate_limit": "requests per second",
        "read_timeout": f"in which the whole body has to come, {_SECONDS}",
        "certificate": f"a file, for `https`, {_FILE}",
        "key": f"the file of its key, {_FILE}, if it is another one",
        "concurrency": "at most so many requests are in progress",
        "timeout": f"of a two-way location: how long the answer is waited for, {_SECONDS}",
    },
    "HttpSendOptions": {
        "method": "of the request",
        "headers": "of the request, with macros",
        "content_type": "where the message does not say its own",
        "timeout": f"for each step: to connect, to write, to read, {_SECONDS}",
        "verify": "`false`: any certificate of the partner will do",
        "ca": f"a file of certificates that the partner's is checked by, {_FILE}",
        "certificate": f"our own certificate, a file, {_FILE}",
        "certificate_key": f"the file of its key, {_FILE}",
        "user": "for basic authentication; may be `env:NAME`",
        "password": "for basic authentication; may be `env:NAME`",
        "token": "for bearer authentication; may be `env:NAME`",
        "maximum_response": "a larger answer suspends the message, in bytes",
    },
    "SqlReceiveOptions": {
        "query": "gives the rows, each of which is a message",
        "key": "the column that tells rows apart",
        "done": "the statement that marks a row, run once its message is published",
        "version": "a column that changes whenever a row does",
        "limit": "how many rows are read at once",
        "timeout": f"of a statement, {_SECONDS}",
        "maximum_size": "a larger row is left out, in bytes",
    },
    "SqlSendOptions": {
        "statement": "SQL with `:name` parameters, run for each message; `:Body` is the body",
        "parameters": "another source for a parameter: a path such as `$.customer.id`, or a property",
        "timeout": f"of the statement, {_SECONDS}",
    },
}

_ERROR = "of the report on a failed message: "
# What messages carry, as far as Crossdock sets it or acts on it.
PROPERTIES: Mapping[str, str] = {
    "BTS.MessageType": "the type of the document, as its schema declares it",
    "BTS.MessageID": "the id of the message",
    "BTS.ReceivePortName": "the receive port it came in by",
    "BTS.ReceiveLocationName": "the receive location it came in by",
    "BTS.InboundTransportLocation": "the address of that location, without passwords",
    "BTS.InboundTransportType": "`FILE`, `SQL` or `HTTP`",
    "BTS.InterchangeID": "the same for all messages of one source",
    "BTS.InterchangeSequenceNumber": "its position in the source, from 1",
    "BTS.LastInterchangeMessage": "whether it is the last one of its source",
    "BTS.SPName": "of an answer: the send port whose partner gave it",
    "BTS.SPTransportID": "names the send port or orchestration that surely gets it",
    "BTS.SPGroupID": "names the group whose ports surely get it",
    "BTS.OutboundTransportLocation": "where a dynamic port sends it",
    "BTS.OutboundTransportType": "by which adapter a dynamic port sends it",
    "BTS.EpmRRCorrelationToken": "of a request and its answer: what tells that they belong together",
    "BTS.IsRequestResponse": "whether somebody waits for an answer",
    "BTS.RouteDirectToTP": "of an answer: it goes to whoever waits for it",
    "FILE.ReceivedFileName": "the file it came from",
    "ErrorReport.ErrorType": _ERROR + "`FailedMessage`",
    "ErrorReport.FailureCode": _ERROR + "what failed, such as `send`",
    "ErrorReport.FailureCategory": _ERROR + "a number, 0",
    "ErrorReport.Description": _ERROR + "why",
    "ErrorReport.MessageType": _ERROR + "the type of that message",
    "ErrorReport.ReceivePortName": _ERROR + "its receive port",
    "ErrorReport.InboundTransportLocation": _ERROR + "the address of its location",
    "ErrorReport.SendPortName": _ERROR + "its send port",
    "ErrorReport.OutboundTransportLocation": _ERROR + "where it was to go",
}
