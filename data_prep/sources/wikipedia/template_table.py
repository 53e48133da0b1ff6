"""What the templates of the English Wikipedia show, by their documentation; names are in lower case.

Read by `templates.py`, which says what the fields of a format mean. Any other template is unknown: the sentence that
contains it is dropped.
"""

# format <- the template and its redirects; `\n` ends a line of the page, `lang-*` is any name that begins with `lang-`,
# and `music|flat` is {{music}} whose first argument is `flat`
SHOWN = r"""
{first} <- abbr, abbrlink, abbreviation, tooltip, linktext, vanchor, visible anchor, anchored text, vr, iast
{first} <- em, emph, strong, strongbad, italic, ital, noitalic, bold, nobold, no bold, normal, underline, u, overline
{first} <- small, smaller, midsize, big, bigger, large, larger, huge, smallcaps, small caps, sc, sc1, sc2, aut
{first} <- nowrap, no wrap, nobr, nobreak, nwr, wrap, keep together, as written, asiantitle, proper name, plain link
{first} <- code, codett, kbd, mono, monospace, samp, tt, var, math, mvar, bigmath, serif, sans-serif, dfn, char
{first} <- strike, strikethrough, s, del, highlight, hilite, xt, !xt, mxt, unicode, polytonic, hebrew, nastaliq
{first} <- script/arabic, script/hebrew, script/greek, script/nastaliq
{first} <- baseball year, mlby, nfl year, nba year, noflag
{first} <- birth-date, death-date, start-date, end-date, birth year, death year and age, gloss, ruby
{first} <- flag, flagu, flagcountry, flagg, flag country, flagioc, flagpbc, country, fb, fb-rt, fbw, nft, cr, cr-rt
{first} <- ru, ru-rt, lang-*
{last} <- ipa, ipa-all, ipalink
{text} <- font, larger font
{second} <- color, colour, font color, font colour
{second} <- fontcolor, colored text, coloured text, colored link, background color
{second} <- langx, lang-x, lang, rtl-lang, native name, script, h:title, hover title, wikt-lang
{last} <- transl, transliteration, translit, tlit, resize, font size
{all} <- not a typo, notatypo, as is, typo ignore, chem name, chemical name, chem, chem2, gaps
{all} [sic] <- sic
{first} {second} <- sortname, bibleref, bibleref2, bibleverse, bible, ship, oldstyledate, oldstyledatedy, osd
{first} ({second}) <- flagathlete, flagiocathlete, flagmedalist, flagiocmedalist
{first} ({rest}) <- nihongo, nihongo2, nihongo3
{first} (m. {rest}) <- marriage, married
{first}-class {second} <- sclass, sclass2, sclass-
{ship} {first} <- ara, css, gts, hdms, hmas, hmcs, hmnzs, hms, hmsas, hmt, hnlms, ins, jds, js, ms, mt, mv, my, nms, nrp
{ship} {first} <- orp, ps, rfa, rms, rv, sms, ss, st, sv, tss, usat, uscgc, usns, usrc, uss
{target} <- ill, illm, interlanguage link, interlanguage link multi, link-interwiki
{authors} ({last}) <- harvtxt, citet
[{first}] <- ipablink, ipa-*
/{first}/ <- ipaslink
/{sounds}/ <- ipac-*
{syllables} <- respell, pronunciation respelling
⟨{first}⟩ <- angbr, angle bracket, angbr ipa
{dots} <- hlist, horizontal list, dotlist
{plus} <- key press, keypress, key, keys, key combination
\n{items}\n <- ubl, ublist, unbulleted list, unbullet, bulleted list
\n{items}\n <- blist, bulletedlist, ordered list, numbered list, olist
\n{text}\n <- plainlist, plain list, flatlist, flat list, indented plainlist
\n\n{text}\n\n <- center, centre
\n{last}\n <- columns-list, columns list, cmn
\n\n{last}\n\n <- align, float, block indent
\n\n{text}\n\n <- blockquote, bquote, quote, quotation, cquote
\n\n{text}\n\n <- rquote, quote box, quotebox, long quote, pull quote, pullquote
\n\n{text}\n\n <- poem, poemquote, poem quote, verse translation, verse
\n; {term}\n <- term, glossary term
\n: {defn}\n <- defn, glossary definition, ghat
<sup>{first}</sup> <- sup, superscript
<sub>{first}</sub> <- sub, subscript
√{first} <- sqrt, radic
|{first}| <- abs
π <- pi
− <- minus
× <- times, ×
± <- ±, +-, +/-
° <- degree, degrees
⇌ <- eqm, equilibrium
→ <- r arrow, rarr
♭ <- flat, music|flat, music|b
♯ <- sharp, music|sharp, music|#
♮ <- natural, music|natural
— <- mdash, em dash, emdash, mdashb
– <- ndash, en dash, endash, ndashb
 –  <- snd, snds, spnd, sndash, spaced ndash, spaced en dash, spaced en dash space, spndash
 —  <- spaced em dash, smd, spaced mdash
  <- nbsp, space, spaces, thinsp, thin space, hair space, hairsp, ensp, emsp, in5, indent, gap, tab, nnbsp, br, break
- <- hyphen, nbhyph, nbh, non-breaking hyphen
… <- ..., ellipsis, hellip
 · <- ·, •, dot, middot, dot separator, interpunct
 • <- bull, bullet
 /  <- \
| <- pipe, !
|| <- !!
= <- equals, =
{open} <- (
{close} <- )
{open}{open} <- ((
{close}{close} <- ))
[ <- !(
] <- )!
' <- apostrophe, apos
ʻ <- okina, ʻ
“{first}” <- "
† <- dagger
‡ <- double dagger
{first}′ <- prime, ′
{first}″ <- double prime, pprime, ″
✓ <- check, checkmark
CO<sub>2</sub> <- co2
H<sub>2</sub>O <- h2o
CH<sub>4</sub> <- ch4
C <- carbon
H <- hydrogen
US${money} <- us$, usd
£{money} <- £, gbp, pound sterling
€{money} <- €, eur, euro
₹{money} <- ₹, inr, indian rupee
¥{money} <- ¥, jpy, jp¥
CN¥{money} <- cny, cn¥, rmb
A${money} <- a$, aud
CA${money} <- ca$, c$, cad
NZ${money} <- nz$, nzd
HK${money} <- hk$, hkd
S${money} <- s$, sgd
NT${money} <- nt$, twd
MX${money} <- mx$, mxn
R${money} <- r$, brl
₩{money} <- ₩, krw
₽{money} <- ₽, rub
₺{money} <- ₺, try
₪{money} <- ₪, ils
₱{money} <- ₱, php
₦{money} <- ₦, ngn
৳{money} <- ৳, bdt
฿{money} <- ฿, thb
₫{money} <- ₫, vnd
₴{money} <- ₴, uah
Rs.{money} <- pkr
R{money} <- zar
CHF {money} <- chf
SEK {money} <- sek
NOK {money} <- nok
DKK {money} <- dkk
Rp {money} <- idr
RM {money} <- myr
zł{money} <- pln
{first}% <- pct, percent
{grouped} <- num, number, formatnum, nts
{fraction} <- frac, fraction, sfrac, frac2
×10<sup>{first}</sup> <- e, x10^
{as_of} <- as of
{date} <- birth date, birth date and age, bda, dob, birth year and age, start date, start date and age, end date
{date} <- end date and age, film date, date, dts, death date, death date and age, dda
c. {span} <- circa, c., ca.
fl. {span} <- fl., fl, floruit
r. {span} <- r., reign
b. {span} <- b.
d. {span} <- d., died-in
{first} million years ago <- mya
{first} thousand years ago <- kya
ISBN {first} <- isbn, isbnt
ISSN {first} <- issn
OCLC {first} <- oclc
LCCN {first} <- lccn
PMID {first} <- pmid
doi:{first} <- doi
arXiv:{first} <- arxiv
U.S. patent {grouped} <- us patent
{open}{open}{first}{close}{close} <- tl, tlx, tlc
"""

# names of what shows nothing in a sentence: references, notes for editors, settings; boxes mostly stand on their own
# lines, where any template may be left out
INVISIBLE = """
r, ref, rp, refn, efn, sfn, sfnp, sfnm, sfnmp, sfnref, harv, harvnb, harvcol, harvcolnb, harvp, harvs, harvc
notetag, cref, cref2, note, note label, notelist, reflist, refbegin, refend, ref label, unbulleted list citebundle
mref, nbn, dagger ref, cn, fact, citation, cite, clarify, clarification, clarifyme, who, who?, whom, whom?, whose
when, when?, where, where?, which, which?, what, why, why?, how, how?, by whom, by whom?, according to whom
according to whom?, says who, says who?, attribution, quantify, specify, vague, ambiguous, dubious, disputed
unreliable source, unreliable source?, better source, unreliable medical source, unreliable fringe source
self-published source, self-published inline, tertiary source, verify source, verify quote, verify credibility
verification failed, failed verification, not in source, full, pov statement, relevance, undue weight, weasel word
peacock term, original research, synthesis, jargon, tone, sentence fragment, contradict, contradictory
inconsistent, obsolete source, update after, update inline, updated, update, as of when, buzz, page number
page numbers, pn, ppn, season needed, sic?, sp?, typo help, dn, dead link, dl, permanent dead link, linkrot
cbignore, webarchive, wayback, bare url, bare url inline, subscription, subscription required
registration required, paywall, closed access, open access, free access, free-to-read, link note, medref, medrs
primary source, third-party source, anchor, anchors, shy, wbr, zwsp, zwj, zwnj, lrm, rlm, empty, void, clear, clr
clear left, clear right, -, paragraph break, pb, nowrap begin, nowrap end, nobr end, wrap begin, wrap end
quote end, col-begin, col-break, col-end, col begin, col break, col end, col div, colbegin, colend, div col
div col begin, div col break, div col end, div end, end div col, endplainlist, startplainlist, plainlist end
endflatlist, startflatlist, flatlist end, glossary, glossary begin, glossary end, ghat end, defaultsort
displaytitle, short description, italic title, lowercase title, lowercase, featured article, good article, pp, toc
toc limit, notoc, portal, sister project links, official website, update span, main, main article, see also
flagicon, flag icon, flagdeco, flagicon image, fbicon, noflag icon, audio, listen, pronunciation audio
coord missing, refimprove, unreferenced, more citations, redirect, about, for, further, multiple issues
authority control, legend, commons, commons category, wikiquote, wikisource, wiktionary, wikibooks, wikivoyage
wikiversity, harvid, snf, inote, #tag:ref
"""

# the same, by how a name begins or ends
INVISIBLE_NAMES = (
    r"(?:defaultsort|displaytitle):.*"
    r"|(?:cite|citation|sfn|efn|use|engvar|infobox|navbox|taxobox|sidebar|campaignbox|pp|sister)[ -].*|engvar[a-z]"
    r"|.*[ -](?:needed|inline|missing|stub|icon|infobox|navbox|sidebar|taxobox|hatnote|notelist)\??|.*infobox|ipa audio"
)

# pronunciations, which are left out within brackets
ASIDES = r"ipac?-.*|ipa|ipa[bs]?link|respell|pronunciation respelling"

# what the parts of {{convert}}'s codes of units become: MUSgal is million US gal
_COUNTED = r"(?=oilbbl|cuft|USgal|impgal|[LS]T)"
UNITS = {
    rf"^(e3|k{_COUNTED})": "thousand ",
    rf"^(e6|M{_COUNTED})": "million ",
    rf"^(e9|G{_COUNTED})": "billion ",
    rf"^(e12|T{_COUNTED})": "trillion ",
    r"\b(sq|cu|US|imp)(?=[a-z])": r"\1 ",
    r"\b(oil)?bbl": "barrels",
    r"\bPD\b": "people",
    r"\bLT\b": "long tons",
    r"\bST\b": "short tons",
    r"\bacre$": "acres",
    r"/d$": " per day",
    r"^(?:deg)?([CF])(-change)?$": r"°\1",
    r"(?<=[a-z])([23])\b": r"<sup>\1</sup>",
}
