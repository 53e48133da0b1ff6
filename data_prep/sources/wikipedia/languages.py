"""Names of languages and countries by their codes, as {{lang-xx}} and {{flag}} show them; the variants of languages."""

import re

_ENTITY = re.compile(r"(&#?\w{1,30});")  # whose semicolon ends no text


def _named(table: str) -> dict[str, str]:
    return {code: name for entry in table.split(";") for code, _, name in [" ".join(entry.split()).partition(" ")]}


# ISO 639, and the codes of Wikipedia's own templates
LANGUAGES = _named(
    """
    ab Abkhaz; af Afrikaans; akk Akkadian; am Amharic; an Aragonese; ang Old English; ar Arabic; arc Aramaic; arz
    Egyptian Arabic; as Assamese; ast Asturian; ay Aymara; az Azerbaijani; ba Bashkir; be Belarusian; ber Berber; bg
    Bulgarian; bn Bengali; bo Tibetan; br Breton; bs Bosnian; ca Catalan; ce Chechen; ceb Cebuano; ckb Central Kurdish;
    co Corsican; cop Coptic; crh Crimean Tatar; cs Czech; cu Old Church Slavonic; cv Chuvash; cy Welsh; da Danish; de
    German; dv Dhivehi; el Greek; en English; enm Middle English; eo Esperanto; es Spanish; et Estonian; eu Basque; fa
    Persian; fi Finnish; fil Filipino; fo Faroese; fr French; frm Middle French; fro Old French; fy West Frisian; ga
    Irish; gd Scottish Gaelic; gl Galician; gmh Middle High German; gn Guarani; goh Old High German; got Gothic; grc
    Ancient Greek; grc-gre Greek; gsw Alemannic German; gu Gujarati; gv Manx; ha Hausa; haw Hawaiian; hbo Biblical
    Hebrew; he Hebrew; hi Hindi; hr Croatian; hsb Upper Sorbian; ht Haitian Creole; hu Hungarian; hy Armenian; ia
    Interlingua; id Indonesian; ig Igbo; io Ido; is Icelandic; it Italian; iu Inuktitut; ja Japanese; jv Javanese; ka
    Georgian; kk Kazakh; kl Greenlandic; km Khmer; kn Kannada; ko Korean; ku Kurdish; kw Cornish; ky Kyrgyz; la Latin;
    lad Judaeo-Spanish; lb Luxembourgish; lo Lao; lt Lithuanian; ltg Latgalian; lv Latvian; mg Malagasy; mi Māori; mk
    Macedonian; ml Malayalam; mn Mongolian; mr Marathi; ms Malay; mt Maltese; my Burmese; nah Nahuatl; nap Neapolitan;
    nb Norwegian Bokmål; nds Low German; ne Nepali; nl Dutch; nn Norwegian Nynorsk; no Norwegian; non Old Norse; nv
    Navajo; oc Occitan; or Odia; os Ossetian; ota Ottoman Turkish; pa Punjabi; pal Middle Persian; peo Old Persian; pi
    Pali; pl Polish; pms Piedmontese; ps Pashto; pt Portuguese; qu Quechua; rm Romansh; ro Romanian; ru Russian; rus
    Russian; sa Sanskrit; sah Yakut; sc Sardinian; scn Sicilian; sco Scots; sd Sindhi; se Northern Sami; sga Old Irish;
    sh Serbo-Croatian; si Sinhala; sk Slovak; sl Slovene; sm Samoan; so Somali; sq Albanian; sr Serbian; su Sundanese;
    sv Swedish; sw Swahili; syr Syriac; szl Silesian; ta Tamil; te Telugu; tg Tajik; th Thai; ti Tigrinya; tk Turkmen;
    tl Tagalog; to Tongan; tr Turkish; tt Tatar; ug Uyghur; uk Ukrainian; ur Urdu; uz Uzbek; vec Venetian; vi
    Vietnamese; wa Walloon; wo Wolof; xh Xhosa; yi Yiddish; yo Yoruba; zh Chinese; zu Zulu
    """
)

# the codes of a language's variants (scripts, regions), as MediaWiki falls back from its own code
_VARIANTS = """
    ban ban-bali ban-x-dharma ban-x-palmleaf ban-x-pku; crh crh-latn crh-cyrl; gan gan-hans gan-hant;
    iu ike-cans ike-latn; kk kk-cyrl kk-latn kk-arab kk-kz kk-tr kk-cn; ku ku-latn ku-arab; mni mni-beng;
    sh sh-latn sh-cyrl; shi shi-latn shi-tfng; sr sr-ec sr-cyrl sr-el sr-latn; tg tg-latn; tly tly-cyrl;
    uz uz-latn uz-cyrl; wuu wuu-hans wuu-hant; zgh zgh-latn;
    zh zh-hans zh-hant zh-cn zh-tw zh-hk zh-sg zh-mo zh-my
"""
VARIANTS = {codes.split()[0]: codes.split() for codes in _VARIANTS.split(";")}

# the codes of the International Olympic Committee, FIFA and ISO 3166 that differ too
COUNTRIES = _named(
    """
    AFG Afghanistan; ALB Albania; ALG Algeria; DZA Algeria; AND Andorra; ANG Angola; AGO Angola; AIA Anguilla; ARG
    Argentina; ARM Armenia; ABW Aruba; ARU Aruba; AUS Australia; AUT Austria; AZE Azerbaijan; BAH Bahamas; BHS Bahamas;
    BAN Bangladesh; BGD Bangladesh; BAR Barbados; BRB Barbados; BLR Belarus; BEL Belgium; BIZ Belize; BEN Benin; BMU
    Bermuda; BER Bermuda; BHU Bhutan; BTN Bhutan; BOL Bolivia; BIH Bosnia and Herzegovina; BOT Botswana; BWA Botswana;
    BVT Bouvet Island; BRA Brazil; VGB British Virgin Islands; IVB British Virgin Islands; BUL Bulgaria; BGR Bulgaria;
    BFA Burkina Faso; BUR Burkina Faso; BDI Burundi; CAM Cambodia; KHM Cambodia; CMR Cameroon; CAN Canada; CPV Cape
    Verde; CYM Cayman Islands; CAY Cayman Islands; CTA Central African Republic; CAF Central African Republic; CHA Chad;
    TCD Chad; CHI Chile; CHL Chile; CHN China; PRC China; TPE Chinese Taipei; COL Colombia; CRC Costa Rica; CRI Costa
    Rica; CRO Croatia; HRV Croatia; CUB Cuba; CUR Curaçao; CUW Curaçao; CYP Cyprus; CZE Czech Republic; TCH
    Czechoslovakia; COD Democratic Republic of the Congo; DEN Denmark; DNK Denmark; DJI Djibouti; DOM Dominican
    Republic; GDR East Germany; ECU Ecuador; EGY Egypt; ESA El Salvador; SLV El Salvador; ENG England; ERI Eritrea; EST
    Estonia; SWZ Eswatini; ETH Ethiopia; FLK Falkland Islands; FRO Faroe Islands; FIJ Fiji; FJI Fiji; FIN Finland; FRA
    France; GAB Gabon; GEO Georgia; GER Germany; DEU Germany; GHA Ghana; GIB Gibraltar; GRE Greece; GRC Greece; GRL
    Greenland; GRN Grenada; GRD Grenada; GUA Guatemala; GTM Guatemala; GGY Guernsey; GUI Guinea; GIN Guinea; GUY Guyana;
    HAI Haiti; HTI Haiti; HON Honduras; HND Honduras; HKG Hong Kong; HUN Hungary; ISL Iceland; IND India; INA Indonesia;
    IDN Indonesia; IRI Iran; IRN Iran; IRQ Iraq; IRL Ireland; IOM Isle of Man; ISR Israel; ITA Italy; CIV Ivory Coast;
    JAM Jamaica; JPN Japan; JEY Jersey; JOR Jordan; KAZ Kazakhstan; KEN Kenya; KOS Kosovo; KUW Kuwait; KWT Kuwait; KGZ
    Kyrgyzstan; LAO Laos; LAT Latvia; LVA Latvia; LIB Lebanon; LBN Lebanon; LES Lesotho; LSO Lesotho; LBR Liberia; LBA
    Libya; LBY Libya; LIE Liechtenstein; LTU Lithuania; LUX Luxembourg; MAC Macau; MAD Madagascar; MDG Madagascar; MAW
    Malawi; MWI Malawi; MAS Malaysia; MYS Malaysia; MDV Maldives; MLI Mali; MLT Malta; MTN Mauritania; MRT Mauritania;
    MRI Mauritius; MUS Mauritius; MEX Mexico; MDA Moldova; MON Monaco; MCO Monaco; MGL Mongolia; MNG Mongolia; MNE
    Montenegro; MSR Montserrat; MAR Morocco; MOZ Mozambique; MYA Myanmar; MMR Myanmar; NAM Namibia; NEP Nepal; NPL
    Nepal; NED Netherlands; NLD Netherlands; NZL New Zealand; NCA Nicaragua; NIC Nicaragua; NIG Niger; NER Niger; NGR
    Nigeria; NGA Nigeria; PRK North Korea; MKD North Macedonia; NIR Northern Ireland; NOR Norway; OMA Oman; OMN Oman;
    PAK Pakistan; PLE Palestine; PSE Palestine; PAN Panama; PNG Papua New Guinea; PAR Paraguay; PRY Paraguay; PER Peru;
    PHI Philippines; PHL Philippines; POL Poland; POR Portugal; PRT Portugal; PUR Puerto Rico; PRI Puerto Rico; QAT
    Qatar; CGO Republic of the Congo; COG Republic of the Congo; ROU Romania; ROM Romania; RUS Russia; RWA Rwanda; SHN
    Saint Helena; LCA Saint Lucia; MAF Saint Martin; SAM Samoa; WSM Samoa; SMR San Marino; KSA Saudi Arabia; SAU Saudi
    Arabia; SCO Scotland; SEN Senegal; SRB Serbia; SCG Serbia and Montenegro; SLE Sierra Leone; SIN Singapore; SGP
    Singapore; SXM Sint Maarten; SVK Slovakia; SLO Slovenia; SVN Slovenia; SOM Somalia; RSA South Africa; ZAF South
    Africa; SGS South Georgia and the South Sandwich Islands; KOR South Korea; SSD South Sudan; URS Soviet Union; USSR
    Soviet Union; ESP Spain; SRI Sri Lanka; LKA Sri Lanka; SUD Sudan; SDN Sudan; SUR Suriname; SWE Sweden; SUI
    Switzerland; CHE Switzerland; SYR Syria; TWN Taiwan; TJK Tajikistan; TAN Tanzania; TZA Tanzania; THA Thailand; GAM
    The Gambia; GMB The Gambia; TOG Togo; TGO Togo; TGA Tonga; TON Tonga; TRI Trinidad and Tobago; TTO Trinidad and
    Tobago; TUN Tunisia; TUR Turkey; TKM Turkmenistan; TCA Turks and Caicos Islands; UGA Uganda; UKR Ukraine; UAE United
    Arab Emirates; ARE United Arab Emirates; GBR United Kingdom; UK United Kingdom; USA United States; US United States;
    VIR United States Virgin Islands; ISV United States Virgin Islands; URU Uruguay; URY Uruguay; UZB Uzbekistan; VAN
    Vanuatu; VUT Vanuatu; VAT Vatican City; VEN Venezuela; VIE Vietnam; VNM Vietnam; WAL Wales; FRG West Germany; ESH
    Western Sahara; YEM Yemen; YUG Yugoslavia; ZAM Zambia; ZMB Zambia; ZIM Zimbabwe; ZWE Zimbabwe
    """
)


def variant_text(content: str, language: str) -> str | None:
    """Return what `-{content}-` shows in a language of VARIANTS: zh-hans:计算机; zh-hant:電腦.

    None for a list of the variants, or the name of one, which are in the words of the wiki. A change of the page's
    title, or of words elsewhere on it, shows nothing.
    """
    codes = VARIANTS[language]
    head, bar, rest = content.partition("|")
    flags = {flag.strip() for flag in head.split(";")} if bar else set()
    rules = rest if bar else content
    if "R" in flags or not flags.isdisjoint(codes):
        return rules
    if not flags.isdisjoint(("-", "H")) or flags == {"T"}:
        return ""
    if not flags.isdisjoint(("D", "N")):
        return None
    texts: dict[str, list[str]] = {}
    code = ""
    for part in _ENTITY.sub("\\1\0", rules).split(";"):
        name, colon, text = part.partition(":")
        name = name.rpartition("=>")[2].strip()
        if colon and name in codes:
            code, texts[name] = name, [text]
        elif code:
            texts[code].append(part)
    shown = (";".join(texts[code]).strip("; \n").replace("\0", ";") for code in (*codes, *texts) if code in texts)
    return next(shown, rules)
